-- What a worker does before it performs: renew its lease, find or take records, claim. One statement each, for as many
-- calls as there are.

-- The lock that a living owner's renewing session holds; a killed process frees it at once.
CREATE FUNCTION owner_lock(p_owner uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT ('x' || left(replace(p_owner::text, '-', ''), 16))::bit(64)::bigint
$$;

-- Whether some session holds it. Looked up, not tried: a sweep on the owner's own session would get its own lock again.
CREATE FUNCTION owner_lives(p_owner uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                 WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                   AND ((l.classid::bigint << 32) | l.objid::bigint) = owner_lock(p_owner))
$$;

-- Begin to work: the lease's row, and the lock of this session.
CREATE FUNCTION enlist(p_owner uuid, p_tools text[], p_source text, p_lease interval)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pg_advisory_lock(owner_lock(p_owner));
  INSERT INTO worker (owner, tools, source, lease, renewed_at, lease_until)
  VALUES (p_owner, p_tools, p_source, p_lease, clock_timestamp(), clock_timestamp() + p_lease);
END $$;

-- Renew. False: the sweep has judged this owner dead; its calls belong to others now, so go on under a new owner id.
-- A new session (p_new_session, after a lost connection) takes the owner's lock again. Null: it is renewed, and the lock
-- is still the old session's, which the server has not missed yet: ask for it at the next time.
CREATE FUNCTION renew(p_owner uuid, p_received_through jsonb, p_new_session boolean)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  held CONSTANT boolean := NOT p_new_session OR pg_try_advisory_lock(owner_lock(p_owner));
BEGIN
  UPDATE worker SET renewed_at = clock_timestamp(), lease_until = clock_timestamp() + lease, received_through = received_through ||
    coalesce((SELECT jsonb_object_agg(key, value::timestamptz) FROM jsonb_each_text(p_received_through)), '{}')  -- or it fails here
  WHERE owner = p_owner;
  RETURN CASE WHEN NOT FOUND THEN false WHEN held THEN true END;
END $$;

-- Leave: the owner holds no call any more.
CREATE FUNCTION resign(p_owner uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM worker w WHERE w.owner = p_owner;
  PERFORM pg_advisory_unlock(owner_lock(p_owner));
END $$;

-- Say for each id: claimed, or why not.
--   claimed   yours now: its key, attempt, digest, deadline, whether to ask (probe) or to perform, how often it was
--             rekeyed and, for a provider key, how long the key can still be trusted. The ledger's key alone makes the idempotency
--             key (I6): a record may say anything. Of the others, the attempt is the newest there was.
--   absent    not visible yet (change data capture runs ahead of the commit): ask again, never skip (I1)
--   running · final · held · retry · in_doubt   known, and not to be performed by you now
--   blocked   an earlier call of its order key is open        paused     its tool is paused
--   busy      another session has the row at this moment      forbidden  not a tool of this worker
--   expired   its key's window or its deadline is over; the sweep judges it
--   no_lease  this owner has none: renew first
-- It takes only pending calls (I7), and sets first_sent_at before anything is sent (I9). Past the window, or without a
-- key, what may have happened is sent again only if a probe has found that it did not, or if repeating does no harm.
CREATE FUNCTION claim(p_ids uuid[], p_owner uuid)
RETURNS TABLE (id uuid, verdict text, key text, attempt int, digest bytea, window_left interval, probe boolean, rekeyed int, deadline interval)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  WITH lease AS MATERIALIZED (
    SELECT w.tools FROM worker w WHERE w.owner = p_owner AND w.lease_until > clock_timestamp()
  ), wanted AS MATERIALIZED (
    SELECT DISTINCT unnest(p_ids) AS id
  ), free AS MATERIALIZED (
    SELECT o.action_id, t.deadline,
           CASE WHEN NOT (t.settle_after IS NOT NULL AND coalesce(clock_timestamp() + t.deadline + t.key_margin >= o.first_sent_at + t.key_window, false))
                THEN t.key_window - t.key_margin END AS key_window
    FROM outcome o JOIN lease l ON o.tool = ANY (l.tools) JOIN tool t ON t.name = o.tool
    WHERE o.action_id = ANY (p_ids) AND o.status = 'pending' AND NOT t.paused
      AND (o.probe
           OR (t.expires IS NULL OR clock_timestamp() < uuid_time(o.action_id) + t.expires)
              AND NOT (coalesce(clock_timestamp() + t.deadline + t.key_margin >= o.first_sent_at + t.key_window,
                               o.unsettled AND t.key_window IS NULL AND t.effect <> 'repeatable')
                      AND NOT (t.settle_after IS NOT NULL AND NOT o.unsettled)))
      AND (o.after IS NULL OR NOT EXISTS (SELECT FROM outcome e WHERE e.action_id = o.after
             AND (e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')
                  OR t.order_stops AND e.status IN ('refused', 'gave_up') AND e.passed IS NULL)))
    ORDER BY o.action_id
    FOR UPDATE OF o SKIP LOCKED
  ), taken AS (
    UPDATE outcome o
    SET status = 'running', owner = p_owner, attempt = o.attempt + 1, claimed_at = clock_timestamp(),
        spent = CASE WHEN o.probe THEN o.spent + 1 ELSE o.spent END,
        probes = CASE WHEN o.probe THEN least(o.probes + 1, 10000) ELSE 0 END,
        let_go = NULL,
        first_sent_at = coalesce(o.first_sent_at, clock_timestamp()),
        until = CASE WHEN o.probe THEN o.until ELSE clock_timestamp() + free.deadline END
    FROM free WHERE o.action_id = free.action_id
    RETURNING o.action_id, o.attempt, o.first_sent_at + free.key_window - clock_timestamp() AS window_left, o.probe, o.rekeyed, free.deadline
  )
  SELECT w.id,
    CASE
      WHEN k.action_id IS NOT NULL THEN 'claimed'
      WHEN NOT EXISTS (SELECT FROM lease) THEN 'no_lease'
      WHEN o.action_id IS NULL THEN 'absent'
      WHEN o.status IN ('done', 'refused', 'gave_up', 'rejected', 'cancelled') THEN 'final'
      WHEN o.status <> 'pending' THEN o.status
      WHEN o.tool <> ALL ((SELECT tools FROM lease)::text[]) THEN 'forbidden'
      WHEN t.paused THEN 'paused'
      WHEN NOT o.probe AND clock_timestamp() >= uuid_time(o.action_id) + t.expires THEN 'expired'
      WHEN NOT o.probe AND NOT (t.settle_after IS NOT NULL AND NOT o.unsettled)
           AND coalesce(clock_timestamp() + t.deadline + t.key_margin >= o.first_sent_at + t.key_window,
                        o.unsettled AND t.key_window IS NULL AND t.effect <> 'repeatable') THEN 'expired'
      WHEN EXISTS (SELECT FROM outcome e WHERE e.action_id = o.after
             AND (e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')
                  OR t.order_stops AND e.status IN ('refused', 'gave_up') AND e.passed IS NULL)) THEN 'blocked'
      ELSE 'busy'
    END,
    a.key, coalesce(k.attempt, o.attempt), a.digest, k.window_left, k.probe, k.rekeyed::int, k.deadline
  FROM wanted w
  LEFT JOIN taken k ON k.action_id = w.id
  LEFT JOIN outcome o ON o.action_id = w.id
  LEFT JOIN tool t ON t.name = o.tool
  LEFT JOIN action a ON a.id = k.action_id
$$;

-- A lane lets go of calls that it cannot perform soon: they are blocked for long, or it ends. They are emitted again
-- when they are due; of those that are blocked, the finish of their predecessor sees to that.
CREATE FUNCTION let_go(p_ids uuid[]) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off AS $$
  UPDATE outcome SET let_go = true, next_at = clock_timestamp() + interval '10 s' WHERE action_id = ANY (p_ids) AND status = 'pending'
$$;

-- Calls as records, for lanes that do without Kafka.
CREATE FUNCTION records(p_ids uuid[])
RETURNS TABLE (action_id uuid, tool text, type text, key text, order_key text, attempt int, traceparent text, payload bytea)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  SELECT a.id, a.tool, CASE WHEN o.probe THEN 'probe' ELSE a.kind END, a.key, coalesce(b.aggregateid, a.id::text), o.attempt + 1, b.traceparent, coalesce(a.payload, b.payload)
  FROM unnest(p_ids) AS w(id) JOIN action a ON a.id = w.id JOIN outcome o ON o.action_id = a.id LEFT JOIN outbox b ON b.id = a.id
  ORDER BY a.id
$$;

-- Pending calls of these tools, oldest first, by a range of the primary key: from p_from, or everything that is open and
-- can be claimed now, with what waits behind it in its order (else a worker would have to look again for each), p_limit
-- for each tool. What is paused, or blocked by what nobody can claim, becomes due by itself; it would fill the page at each look.
CREATE FUNCTION pending(p_tools text[], p_from uuid, p_limit int) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  IF p_from IS NULL THEN
    RETURN QUERY WITH RECURSIVE free AS (
      (SELECT o.action_id FROM tool t CROSS JOIN LATERAL (
           SELECT x.action_id, x.next_at FROM outcome x WHERE x.tool = t.name AND x.next_at IS NOT NULL AND x.status = 'pending'
             AND NOT EXISTS (SELECT FROM outcome e WHERE e.action_id = x.after
                   AND (e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')
                        OR t.order_stops AND e.status IN ('refused', 'gave_up') AND e.passed IS NULL))
           ORDER BY x.next_at LIMIT p_limit) o
       WHERE t.name = ANY (p_tools) AND NOT t.paused ORDER BY o.next_at)
      UNION ALL
      SELECT o.action_id FROM free f JOIN outcome o ON o.after = f.action_id
      WHERE o.status = 'pending' AND o.next_at IS NOT NULL
    ) SELECT free.action_id FROM free LIMIT p_limit * cardinality(p_tools);
  END IF;
  RETURN QUERY SELECT o.action_id FROM outcome o
    WHERE o.action_id >= coalesce(p_from, (SELECT watermark FROM box))
      AND o.status = 'pending' AND o.next_at IS NULL AND o.tool = ANY (p_tools)
    ORDER BY o.action_id LIMIT p_limit;
END $$;

-- Keep a record that cannot be taken as a call, so that its partition goes on (I14).
CREATE FUNCTION set_aside(p_topic text, p_partition int, p_offset bigint, p_key bytea, p_headers jsonb, p_payload bytea, p_reason text)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  INSERT INTO stray (topic, partition, offset_, record_key, headers, payload, reason)
  VALUES (p_topic, p_partition, p_offset, p_key, p_headers, p_payload, p_reason)
  ON CONFLICT DO NOTHING
$$;

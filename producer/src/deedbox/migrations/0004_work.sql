-- What a worker does: renew its lease, take records, claim, finish. One statement each, for as many calls as there are.

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
-- A new session (p_new_session, after a lost connection) takes the owner's lock again.
CREATE FUNCTION renew(p_owner uuid, p_received_through jsonb, p_new_session boolean)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF p_new_session THEN PERFORM pg_advisory_lock(owner_lock(p_owner)); END IF;
  UPDATE worker SET renewed_at = clock_timestamp(), lease_until = clock_timestamp() + lease,
                    received_through = received_through || p_received_through
  WHERE owner = p_owner;
  RETURN FOUND;
END $$;

-- Leave: the owner holds no call any more.
CREATE FUNCTION resign(p_owner uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM worker w WHERE w.owner = p_owner;
  PERFORM pg_advisory_unlock(owner_lock(p_owner));
END $$;

-- Say for each id: claimed, or why not.
--   claimed   yours now: its key, attempt, digest and, for a provider key, how long the key can still be trusted. The
--             ledger's key alone makes the idempotency key (I6): a record may say anything.
--   absent    not visible yet (change data capture runs ahead of the commit): ask again, never skip (I1)
--   running · final · held · retry · in_doubt   known, and not to be performed by you now
--   blocked   an earlier call of its order key is open        paused     its tool is paused
--   busy      another session has the row at this moment      forbidden  not a tool of this worker
--   expired   its key's window is over; the sweep judges it   no_lease   this owner has none: renew first
-- It takes only pending calls (I7), and sets first_sent_at before anything is sent (I9).
CREATE FUNCTION claim(p_ids uuid[], p_owner uuid)
RETURNS TABLE (id uuid, verdict text, key text, attempt int, digest bytea, window_left interval)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  WITH lease AS MATERIALIZED (
    SELECT w.tools FROM worker w WHERE w.owner = p_owner AND w.lease_until > clock_timestamp()
  ), wanted AS MATERIALIZED (
    SELECT DISTINCT unnest(p_ids) AS id
  ), free AS MATERIALIZED (
    SELECT o.action_id, t.key_window - t.key_margin AS key_window
    FROM outcome o JOIN lease l ON o.tool = ANY (l.tools) JOIN tool t ON t.name = o.tool
    WHERE o.action_id = ANY (p_ids) AND o.status = 'pending' AND NOT t.paused
      AND (o.first_sent_at IS NULL OR t.key_window IS NULL
           OR clock_timestamp() + t.deadline + t.key_margin < o.first_sent_at + t.key_window)
      AND (o.after IS NULL OR NOT EXISTS (SELECT FROM outcome e WHERE e.action_id = o.after
                                            AND e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')))
    ORDER BY o.action_id
    FOR UPDATE OF o SKIP LOCKED
  ), taken AS (
    UPDATE outcome o
    SET status = 'running', owner = p_owner, attempt = o.attempt + 1, claimed_at = clock_timestamp(),
        first_sent_at = coalesce(o.first_sent_at, clock_timestamp())
    FROM free WHERE o.action_id = free.action_id
    RETURNING o.action_id, o.attempt, o.first_sent_at + free.key_window - clock_timestamp() AS window_left
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
      WHEN o.first_sent_at IS NOT NULL AND clock_timestamp() + t.deadline + t.key_margin >= o.first_sent_at + t.key_window THEN 'expired'
      WHEN EXISTS (SELECT FROM outcome e WHERE e.action_id = o.after
                     AND e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')) THEN 'blocked'
      ELSE 'busy'
    END,
    a.key, k.attempt, a.digest, k.window_left
  FROM wanted w
  LEFT JOIN taken k ON k.action_id = w.id
  LEFT JOIN outcome o ON o.action_id = w.id
  LEFT JOIN tool t ON t.name = o.tool
  LEFT JOIN action a ON a.id = k.action_id
$$;

-- Emit calls (again): the bytes are those of the first emission, or wait in the action (I13).
CREATE FUNCTION emit(p_ids uuid[]) RETURNS void LANGUAGE sql SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  INSERT INTO outbox (aggregatetype, aggregateid, type, action_id, key, attempt, traceparent, payload)
  SELECT a.tool, coalesce(b.aggregateid, a.id::text), a.kind, a.id, a.key, o.attempt + 1, b.traceparent, coalesce(a.payload, b.payload)
  FROM unnest(p_ids) AS w(id) JOIN action a ON a.id = w.id JOIN outcome o ON o.action_id = a.id LEFT JOIN outbox b ON b.id = a.id
  ORDER BY a.id
$$;

-- Tell who waits: outcomes that became final or in doubt leave as events; what was let go behind them is due; and one
-- notice per batch wakes the agents, naming the runs while that is short.
CREATE FUNCTION announce(p_ids uuid[]) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  runs text;
BEGIN
  WITH news AS MATERIALIZED (
    SELECT a.id, a.key, a.run_id, o.attempt, o.status,
           result_event(o.status, o.attempt, o.result::text, o.error::text, o.first_sent_at,
                        coalesce(o.finished_at, clock_timestamp())) AS payload
    FROM unnest(p_ids) AS w(id) JOIN action a ON a.id = w.id JOIN outcome o ON o.action_id = a.id
  ), told AS (
    INSERT INTO outbox (aggregatetype, aggregateid, type, action_id, key, attempt, payload)
    SELECT '_result', id::text, 'result', id, key, attempt, payload FROM news
    UNION ALL SELECT '_dead', id::text, 'dead', id, key, attempt, payload FROM news WHERE status = 'gave_up'
  )
  SELECT string_agg(DISTINCT run_id, ',') INTO runs FROM news;
  UPDATE outcome o SET next_at = clock_timestamp()
  FROM action a WHERE a.after = ANY (p_ids) AND o.action_id = a.id AND o.status = 'pending' AND o.next_at IS NOT NULL;
  IF runs IS NOT NULL THEN
    PERFORM pg_notify(current_schema(), CASE WHEN octet_length(runs) < 7900 THEN runs ELSE '' END);
  END IF;
END $$;

-- Record what became of claimed calls. For each id: recorded, already (this very report was recorded before: repeating
-- is harmless), or late (fenced off by a newer owner or attempt, I8: kept in late; it settles the same attempt's doubt,
-- also while a repeat waits to be claimed).
--   p_statuses   done · refused · gave_up · in_doubt · retry (after p_delays) · pending (given back, was never sent)
--   p_unsettled  true: it may have happened · false: the provider's own answer settled it · null: as it was
-- An outcome that cannot be final while unsettled becomes in doubt (I16).
CREATE FUNCTION finish(p_owner uuid, p_ids uuid[], p_attempts int[], p_statuses text[], p_results json[], p_errors json[],
                       p_unsettled boolean[], p_delays interval[])
RETURNS TABLE (id uuid, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  recorded uuid[];
  closed uuid[];
  given_back uuid[];
  settled uuid[];
BEGIN
  IF (SELECT count(DISTINCT id) FROM unnest(p_ids) AS x(id)) < cardinality(p_ids) THEN
    RAISE EXCEPTION 'a call stands twice in one report: report each attempt in a statement of its own' USING ERRCODE = '22023';
  END IF;
  IF NOT p_statuses <@ ARRAY['done', 'refused', 'gave_up', 'in_doubt', 'retry', 'pending'] THEN
    RAISE EXCEPTION 'a worker reports done, refused, gave_up, in_doubt, retry or pending, not %', p_statuses USING ERRCODE = '22023';
  END IF;
  WITH said AS MATERIALIZED (
    SELECT * FROM unnest(p_ids, p_attempts, p_statuses, p_results, p_errors, p_unsettled, p_delays)
      AS s(id, attempt, status, result, error, unsettled, delay) ORDER BY id
  ), written AS (
    UPDATE outcome o
    SET owner = CASE WHEN s.status <> 'pending' THEN o.owner END,
        status = CASE WHEN s.status IN ('gave_up', 'refused', 'done') AND coalesce(s.unsettled, o.unsettled) THEN 'in_doubt' ELSE s.status END,
        unsettled = coalesce(s.unsettled, o.unsettled),
        result = s.result,
        error = s.error,
        finished_at = CASE WHEN s.status IN ('retry', 'pending') THEN NULL ELSE clock_timestamp() END,
        next_at = CASE
          WHEN s.status = 'retry' THEN clock_timestamp() + s.delay
          WHEN s.status = 'pending' THEN clock_timestamp() + interval '1 min'  -- parked: its id may lie below the watermark
          WHEN s.status = 'in_doubt' OR s.status IN ('gave_up', 'refused', 'done') AND coalesce(s.unsettled, o.unsettled) THEN 'infinity'
          ELSE o.next_at
        END
    FROM said s
    WHERE o.action_id = s.id AND o.owner = p_owner AND o.attempt = s.attempt AND o.status = 'running'
    RETURNING o.action_id, o.status
  )
  SELECT array_agg(action_id),
         array_agg(action_id) FILTER (WHERE status NOT IN ('retry', 'pending')),
         array_agg(action_id) FILTER (WHERE status = 'pending')
  INTO recorded, closed, given_back FROM written;

  IF coalesce(cardinality(recorded), 0) < cardinality(p_ids) THEN
    WITH said AS MATERIALIZED (
      SELECT * FROM unnest(p_ids, p_attempts, p_statuses, p_results, p_errors)
        AS s(id, attempt, status, result, error) WHERE NOT s.id = ANY (coalesce(recorded, '{}')) ORDER BY id
    ), doubt AS (
      UPDATE outcome o SET status = s.status, unsettled = false, owner = p_owner, result = s.result, error = s.error,
                           finished_at = clock_timestamp(), next_at = NULL
      FROM said s
      WHERE o.action_id = s.id AND o.attempt = s.attempt AND s.status IN ('done', 'refused')
        AND o.status IN ('in_doubt', 'pending', 'retry') AND o.unsettled  -- no newer attempt has begun
      RETURNING o.action_id
    ), kept AS (
      INSERT INTO late (action_id, attempt, owner, status, result, error, settled)
      SELECT s.id, s.attempt, p_owner, s.status, s.result, s.error, s.id IN (SELECT action_id FROM doubt)
      FROM said s
      WHERE s.status <> 'pending' AND NOT EXISTS (SELECT FROM outcome o WHERE o.action_id = s.id AND o.owner = p_owner
                                                    AND o.attempt = s.attempt AND o.status <> 'running')
    )
    SELECT array_agg(action_id) INTO settled FROM doubt;
  END IF;

  IF given_back IS NOT NULL THEN PERFORM emit(given_back); END IF;
  IF closed IS NOT NULL OR settled IS NOT NULL THEN PERFORM announce(closed || settled); END IF;

  RETURN QUERY
  SELECT s.id, CASE
      WHEN s.id = ANY (recorded) THEN 'recorded'
      WHEN EXISTS (SELECT FROM outcome o WHERE o.action_id = s.id AND o.owner = p_owner AND o.attempt = s.attempt
                     AND o.status <> 'running' AND NOT s.id = ANY (coalesce(settled, '{}'))) THEN 'already'
      ELSE 'late'
    END
  FROM unnest(p_ids) WITH ORDINALITY AS w(id, i) JOIN unnest(p_ids, p_attempts) AS s(id, attempt) ON s.id = w.id;
END $$;

-- A lane lets go of calls that are blocked for long: the finish of their predecessor makes them due again.
CREATE FUNCTION let_go(p_ids uuid[]) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off AS $$
  UPDATE outcome SET next_at = clock_timestamp() + interval '10 s' WHERE action_id = ANY (p_ids) AND status = 'pending'
$$;

-- Calls as records, for lanes that do without Kafka.
CREATE FUNCTION records(p_ids uuid[])
RETURNS TABLE (action_id uuid, tool text, type text, key text, order_key text, attempt int, traceparent text, payload bytea)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  SELECT a.id, a.tool, a.kind, a.key, coalesce(b.aggregateid, a.id::text), o.attempt + 1, b.traceparent, coalesce(a.payload, b.payload)
  FROM unnest(p_ids) AS w(id) JOIN action a ON a.id = w.id JOIN outcome o ON o.action_id = a.id LEFT JOIN outbox b ON b.id = a.id
  ORDER BY a.id
$$;

-- Pending calls of these tools, oldest first, by a range of the primary key: from p_from, or everything that is open.
CREATE FUNCTION pending(p_tools text[], p_from uuid, p_limit int) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
BEGIN
  IF p_from IS NULL THEN
    RETURN QUERY SELECT o.action_id FROM outcome o
      WHERE o.next_at IS NOT NULL AND o.status = 'pending' AND o.tool = ANY (p_tools) ORDER BY o.next_at LIMIT p_limit;
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

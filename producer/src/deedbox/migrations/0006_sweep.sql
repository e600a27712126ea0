-- The sweep judges what the dead left behind, and looks after all that waits for a moment. It has no leader: every
-- worker calls it each second or so, one at a time, all tools, pure SQL, bounded work per turn.

-- These attempts ended without a word of their worker.
CREATE FUNCTION judge(p_ids uuid[], p_reason text) RETURNS TABLE (id uuid, status text)
LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT e.id, e.status
  FROM (SELECT array_agg(w.id) AS ids, array_agg(json_build_object('reason', p_reason, 'attempt', o.attempt)) AS errors
        FROM unnest(p_ids) AS w(id) JOIN outcome o ON o.action_id = w.id) x,
       end_attempt(x.ids, array_fill('unknown'::text, ARRAY[cardinality(x.ids)]), x.errors,
                   array_fill(interval '0', ARRAY[cardinality(x.ids)]), false) e
  WHERE x.ids IS NOT NULL
$$;

-- The nightly proof that nothing was forgotten (I5): every open call, whatever the watermark says, that no worker
-- holds, that is not due at a time, not held and not in doubt. What it finds becomes due now. A page of p_limit calls
-- from p_from on; through is where the next one begins, null after the last.
CREATE FUNCTION full_scan(p_from uuid DEFAULT '00000000-0000-0000-0000-000000000000', p_limit int DEFAULT NULL, OUT found uuid[], OUT through uuid)
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  WITH page AS MATERIALIZED (
    SELECT o.action_id, o.status, o.next_at FROM outcome o WHERE o.action_id > p_from AND o.action_id < (SELECT watermark FROM box)
    ORDER BY o.action_id LIMIT p_limit
  ), lost AS (
    UPDATE outcome o SET next_at = clock_timestamp() FROM page p
    WHERE p.status IN ('held', 'pending', 'running', 'retry', 'in_doubt') AND p.next_at IS NULL AND o.action_id = p.action_id
      AND o.next_at IS NULL AND o.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')
    RETURNING o.action_id
  )
  SELECT (SELECT array_agg(action_id) FROM lost),
         (SELECT (array_agg(action_id ORDER BY action_id DESC))[1] FROM page HAVING count(*) = p_limit)
$$;

-- One turn. What it did, a row per call: condemned (its owner is dead), overdue (its attempt's deadline passed under a
-- living owner), retried, asked again (a probe is due), emitted again (it was let go, or nobody answered though its workers have
-- received what came after it), expired (its deadline, or its key's window, ended before it was sent again), found (it was
-- forgotten: a defect), failed (it could not be judged, status says why: a defect; looked at again in a minute) and,
-- without an id, heartbeat and pruned. The status tells whether a call is free to be claimed. Each duty takes p_limit
-- calls a turn, of each tool where they are due at a time, so that none holds up another. No rows: nothing was due, or
-- another session sweeps at this moment.
CREATE FUNCTION sweep(p_limit int DEFAULT 1000) RETURNS TABLE (duty text, tool text, id uuid, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := clock_timestamp();
  dead uuid[];
  ids uuid[];
  next_id uuid;
  due record;
  here record;
  horizon uuid;
  prune_to uuid;
  prune_count bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended(current_schema() || '.sweep', 0)) THEN RETURN; END IF;
  SELECT * INTO here FROM box;

  -- Owners. Dead: the lease has passed; or sooner, the lock that its session held is free and it has missed two
  -- renewals (of a quarter lease each). A server that has just started condemns nobody before a lease's time.
  -- Their rows are locked: a renewal that is under way is alive, one that comes now waits and finds nothing.
  SELECT array_agg(x.owner) INTO dead FROM (
    SELECT w.owner FROM worker w
    WHERE moment > pg_postmaster_start_time() + w.lease
      AND (w.lease_until < moment
           OR w.renewed_at < moment - w.lease / 2 AND NOT owner_lives(w.owner))
    FOR UPDATE SKIP LOCKED) x;
  IF dead IS NOT NULL THEN
    SELECT array_agg(x.action_id) INTO ids FROM (
      SELECT o.action_id FROM outcome o
      WHERE (o.action_id >= here.watermark OR o.next_at IS NOT NULL) AND o.status = 'running' AND o.owner = ANY (dead)
      LIMIT p_limit FOR UPDATE SKIP LOCKED) x;
    BEGIN
      RETURN QUERY SELECT 'condemned', o.tool, j.id, j.status
        FROM judge(ids, 'its worker died') j JOIN outcome o ON o.action_id = j.id;
    EXCEPTION
    WHEN transaction_rollback OR object_not_in_prerequisite_state OR insufficient_resources OR operator_intervention THEN RAISE;
    WHEN OTHERS THEN  -- one of them cannot be judged: it is not to keep the others from it
      FOREACH next_id IN ARRAY ids LOOP
        BEGIN
          RETURN QUERY SELECT 'condemned', o.tool, j.id, j.status
            FROM judge(ARRAY[next_id], 'its worker died') j JOIN outcome o ON o.action_id = j.id;
        EXCEPTION
        WHEN transaction_rollback OR object_not_in_prerequisite_state OR insufficient_resources OR operator_intervention THEN RAISE;
        WHEN OTHERS THEN
          UPDATE outcome o SET owner = NULL, next_at = moment + interval '1 min' WHERE o.action_id = next_id
          RETURNING 'failed', o.tool, o.action_id, SQLERRM INTO duty, tool, id, status;
          RETURN NEXT;
        END;
      END LOOP;
    END;
    -- What waits in their lanes for its next try is due: nobody else has it.
    UPDATE outcome o SET let_go = true, owner = NULL, next_at = moment
    WHERE o.action_id IN (SELECT x.action_id FROM outcome x WHERE x.next_at IS NOT NULL AND x.status = 'pending' AND x.owner = ANY (dead) LIMIT p_limit);
    DELETE FROM worker w WHERE w.owner = ANY (dead)
      AND NOT EXISTS (SELECT FROM outcome o WHERE (o.action_id >= here.watermark OR o.next_at IS NOT NULL)
                        AND o.status = 'running' AND o.owner = w.owner);
  END IF;

  -- Moments that have come.
  FOR due IN
    SELECT o.action_id, o.tool, o.status, o.first_sent_at, o.unsettled, o.probe, o.let_go, o.since, t.paused,
           t.settle_after IS NOT NULL AS probed,
           CASE WHEN o.probe THEN o.claimed_at + t.deadline ELSE o.until END + interval '10 s' AS overdue_at,
           coalesce(moment >= uuid_time(o.action_id) + t.expires, false) AS unwanted,
           coalesce(moment + t.deadline + t.key_margin >= o.first_sent_at + t.key_window,
                    o.unsettled AND t.key_window IS NULL AND t.effect <> 'repeatable')
             AND NOT (t.settle_after IS NOT NULL AND NOT o.unsettled) AS forgotten,
           EXISTS (SELECT FROM outcome e WHERE e.action_id = o.after
                     AND (e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')
                          OR t.order_stops AND e.status IN ('refused', 'gave_up') AND e.passed IS NULL)) AS blocked
    FROM tool t CROSS JOIN LATERAL (SELECT * FROM outcome x WHERE x.tool = t.name AND x.next_at <= moment
                                    ORDER BY x.next_at LIMIT p_limit FOR UPDATE SKIP LOCKED) o
  LOOP
  BEGIN
    IF due.status IN ('pending', 'retry', 'held') AND NOT due.probe AND (due.unwanted OR due.forgotten AND due.status <> 'held') THEN
      UPDATE outcome o SET owner = NULL, finished_at = moment,
        status = CASE WHEN due.unsettled AND due.probed THEN 'retry' WHEN due.unsettled THEN 'in_doubt'
                      WHEN due.first_sent_at IS NULL THEN 'cancelled' ELSE 'gave_up' END,
        probe = due.unsettled AND due.probed,
        next_at = CASE WHEN due.unsettled AND due.probed THEN moment WHEN due.unsettled THEN 'infinity' END,
        error = json_build_object('reason', CASE
          WHEN due.first_sent_at IS NULL THEN 'its deadline passed before it was begun'
          WHEN due.unwanted THEN 'its deadline passed before it was sent again'
          ELSE 'the window of its key was over before it could be sent again' END)
      WHERE o.action_id = due.action_id RETURNING 'expired', o.tool, o.action_id, o.status INTO duty, tool, id, status;
      IF status <> 'retry' THEN PERFORM announce(ARRAY[id]); END IF;
      RETURN NEXT;
    ELSIF due.status = 'retry' OR due.status = 'in_doubt' AND due.probe THEN
      UPDATE outcome o SET status = 'pending', owner = NULL, next_at = moment + interval '1 min' WHERE o.action_id = due.action_id;
      PERFORM emit(ARRAY[due.action_id]);
      duty := CASE WHEN due.probe THEN 'asked again' ELSE 'retried' END; tool := due.tool; id := due.action_id; status := 'pending';
      RETURN NEXT;
    ELSIF due.status = 'running' AND due.overdue_at <= moment THEN
      -- The worker ends an attempt at its deadline itself; ten seconds later it has not.
      RETURN QUERY SELECT 'overdue', due.tool, j.id, j.status FROM judge(ARRAY[due.action_id], 'its attempt outlived the deadline') j;
    ELSIF due.status = 'running' THEN
      UPDATE outcome o SET next_at = due.overdue_at WHERE o.action_id = due.action_id;
    ELSIF due.status = 'pending' AND due.paused THEN
      -- Not unanswered: it waits on purpose, where it was received or in its topic.
      UPDATE outcome o SET next_at = moment + interval '10 min' WHERE o.action_id = due.action_id;
    ELSIF due.status = 'pending' AND due.blocked THEN
      -- The finish of its predecessor makes it due; this look is for what got lost, and for what a redrive has moved.
      UPDATE outcome o SET next_at = moment + CASE WHEN due.since IS NULL THEN interval '10 min' ELSE interval '10 s' END WHERE o.action_id = due.action_id;
    ELSIF due.status = 'pending' THEN
      -- Unanswered. At most after 1, 2, 4 … 60 minutes: the next look is one age away.
      UPDATE outcome o SET let_go = NULL, next_at = moment + least(greatest(moment - uuid_time(due.action_id), interval '1 min'), interval '60 min')
      WHERE o.action_id = due.action_id;
      -- Nobody has what was let go: a worker that reads the ledger would find it, a topic has to be told. And who has
      -- received what came later, and has not answered, never will.
      IF due.let_go AND NOT EXISTS (SELECT FROM worker w WHERE due.tool = ANY (w.tools) AND w.source = 'poll')
         OR EXISTS (SELECT FROM worker w WHERE due.tool = ANY (w.tools) AND w.source = 'kafka')
         AND NOT EXISTS (SELECT FROM worker w WHERE due.tool = ANY (w.tools) AND w.source = 'kafka'
                           AND coalesce((w.received_through ->> due.tool)::timestamptz, '-infinity') <= uuid_time(due.action_id)) THEN
        PERFORM emit(ARRAY[due.action_id]);
        duty := 'emitted again'; tool := due.tool; id := due.action_id; status := 'pending';
        RETURN NEXT;
      END IF;
    ELSE
      UPDATE outcome o SET next_at = CASE WHEN due.status IN ('held', 'in_doubt') THEN 'infinity'::timestamptz END  -- a final one: none
      WHERE o.action_id = due.action_id;
    END IF;
  EXCEPTION
  -- Locks, other transactions, a server without room: the turn ends here, and the next one begins anew.
  WHEN transaction_rollback OR object_not_in_prerequisite_state OR insufficient_resources OR operator_intervention THEN RAISE;
  WHEN OTHERS THEN
    UPDATE outcome o SET next_at = moment + interval '1 min' WHERE o.action_id = due.action_id;
    duty := 'failed'; tool := due.tool; id := due.action_id; status := SQLERRM;
    RETURN NEXT;
  END;
  END LOOP;

  -- Every five seconds, the slower duties.
  IF moment < here.swept_at + interval '5 s' THEN RETURN; END IF;

  -- An ordinary outbox row is the heartbeat: it moves the slot on and measures the whole pipeline. Never Debezium's own
  -- heartbeats: with them 3.6 lost committed rows after a crash.
  IF EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = here.prefix || '_outbox' AND s.database = current_database()) THEN
    INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('_heartbeat', here.id, 'heartbeat', convert_to(here.id, 'UTF8'));
    duty := 'heartbeat'; tool := NULL; id := NULL; status := NULL;
    RETURN NEXT;
  END IF;

  -- Park what is open for longer than 30 s, so that the range of the primary key in which open calls are looked for
  -- stays short however long a call takes. A running call whose owner is nowhere is judged here.
  FOR due IN
    SELECT o.action_id, o.tool, o.status, t.expires, EXISTS (SELECT FROM worker w WHERE w.owner = o.owner) AS owned,
           CASE WHEN o.probe THEN o.claimed_at + t.deadline ELSE o.until END + interval '10 s' AS overdue_at
    FROM outcome o JOIN tool t ON t.name = o.tool
    WHERE o.action_id >= here.watermark AND o.action_id < uuid_floor(moment - interval '30 s')
      AND o.status IN ('held', 'pending', 'running', 'retry', 'in_doubt') AND o.next_at IS NULL
    ORDER BY o.action_id LIMIT p_limit FOR UPDATE OF o SKIP LOCKED
  LOOP
    IF due.status = 'running' AND NOT due.owned THEN
      RETURN QUERY SELECT 'condemned', due.tool, j.id, j.status FROM judge(ARRAY[due.action_id], 'its worker died') j;
    ELSE
      UPDATE outcome o SET next_at = CASE due.status
          WHEN 'running' THEN due.overdue_at
          WHEN 'pending' THEN moment + interval '30 s'
          WHEN 'held' THEN coalesce(uuid_time(o.action_id) + due.expires, 'infinity')
          ELSE 'infinity'::timestamptz END
      WHERE o.action_id = due.action_id;
    END IF;
  END LOOP;

  -- The watermark follows the oldest open call that is not parked, and never passes an id that a transaction still
  -- running may bring: one that began before the mark may have drawn an id before it. Clocks may step back a little.
  horizon := uuid_floor(least(here.mark_at, moment) - interval '5 s');
  UPDATE box SET
    swept_at = moment,
    watermark = CASE WHEN here.mark_xid > pg_current_xact_id() THEN watermark ELSE greatest(watermark, coalesce(
      (SELECT o.action_id FROM outcome o WHERE o.action_id >= here.watermark AND o.action_id < horizon
         AND o.status IN ('held', 'pending', 'running', 'retry', 'in_doubt') AND o.next_at IS NULL
       ORDER BY o.action_id LIMIT 1), horizon)) END,
    -- Our own id: whoever has a smaller one may have drawn ids before this moment, whoever gets a greater one has not.
    mark_xid = pg_current_xact_id(),
    mark_at = moment
  WHERE pg_snapshot_xmin(pg_current_snapshot()) >= here.mark_xid
     OR here.mark_xid > pg_current_xact_id();  -- of another cluster, by a dump: a new mark, and the watermark stays this time
  IF NOT FOUND THEN UPDATE box SET swept_at = moment; END IF;

  -- Prune what is older than the retention: never the bytes of a call that may be emitted again, never a schema.
  WITH old AS MATERIALIZED (
    SELECT b.id, b.type <> 'schema' AND NOT EXISTS (
             SELECT FROM outcome o WHERE o.action_id = b.id AND o.status IN ('held', 'pending', 'running', 'retry', 'in_doubt'))
           AND NOT EXISTS (SELECT FROM dead d WHERE d.action_id = b.id AND d.closed_at IS NULL) AS settled
    FROM outbox b WHERE b.id > here.pruned AND b.id < uuid_floor(moment - here.retention) ORDER BY b.id LIMIT p_limit
  ), gone AS (
    DELETE FROM outbox b USING old WHERE b.id = old.id AND old.settled RETURNING b.id
  )
  SELECT (array_agg(old.id ORDER BY old.id DESC))[1], (SELECT count(*) FROM gone) INTO prune_to, prune_count FROM old;
  IF prune_to IS NOT NULL THEN UPDATE box SET pruned = prune_to; END IF;
  IF prune_count > 0 THEN
    duty := 'pruned'; tool := NULL; id := NULL; status := prune_count::text;
    RETURN NEXT;
  END IF;

  -- Once a day, page by page, the proof that nothing was forgotten. What it finds is a defect, and becomes due.
  IF here.scanned IS NOT NULL OR moment > here.scanned_at + interval '1 day' THEN
    SELECT f.found, f.through INTO ids, next_id FROM full_scan(coalesce(here.scanned, '00000000-0000-0000-0000-000000000000'), 10 * p_limit) f;
    UPDATE box SET scanned = next_id, scanned_at = CASE WHEN here.scanned IS NULL THEN moment ELSE scanned_at END,
                   pruned = CASE WHEN here.scanned IS NULL THEN '00000000-0000-0000-0000-000000000000' ELSE pruned END;  -- what was kept may go by now
    RETURN QUERY SELECT 'found', o.tool, o.action_id, NULL::text FROM unnest(ids) AS lost(id) JOIN outcome o ON o.action_id = lost.id;
  END IF;
END $$;

-- Writer schemas travel too, so that a restored database can read what was recorded after its backup.
CREATE FUNCTION publish_schema() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
  VALUES ('_schema', encode(new.fingerprint, 'hex'), 'schema', convert_to(new.schema::text, 'UTF8'));
  RETURN NULL;
END $$;
CREATE TRIGGER publish AFTER INSERT ON avro FOR EACH ROW EXECUTE FUNCTION publish_schema();
INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
SELECT '_schema', encode(fingerprint, 'hex'), 'schema', convert_to(schema::text, 'UTF8') FROM avro;

-- Withdraw those of these calls that are open, not under way and surely without an effect. One that a worker claims at
-- this moment is waited for, and then under way.
CREATE FUNCTION withdraw(p_keys text[], p_reason text) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  withdrawn uuid[];
BEGIN
  PERFORM FROM outcome o JOIN action a ON a.id = o.action_id WHERE a.key = ANY (p_keys)
    AND o.status IN ('held', 'pending', 'retry') ORDER BY o.action_id FOR UPDATE OF o;
  WITH gone AS (
    UPDATE outcome o SET status = 'cancelled', owner = NULL, next_at = NULL, finished_at = clock_timestamp(),
                         error = json_build_object('reason', p_reason)
    FROM action a WHERE a.key = ANY (p_keys) AND o.action_id = a.id
      AND o.status IN ('held', 'pending', 'retry') AND NOT o.unsettled
    RETURNING o.action_id
  )
  SELECT array_agg(action_id) INTO withdrawn FROM gone;
  IF withdrawn IS NOT NULL THEN PERFORM announce(withdrawn); END IF;
END $$;

-- commit_step: a step of a run, its calls and their outbox rows, inside the caller's transaction (I2, I3, I4).
--
-- The verdict says what became of it:
--   fresh     written; ids has one id per call
--   taken     this step exists: its kind (detail) and what it decided come back, so that the caller can tell a race from
--             a divergence
--   gap       the step before it does not exist
--   unknown   there is no such run
--   closed    the run takes no more steps
--   open      an earlier call is still open or unsettled, and p_while_open is false; detail names it
--   repeated  a call equals one of the run's open calls in tool and arguments, and p_again is false; detail names it
-- On any verdict but fresh nothing is written. A step from outside (input, cancel, abort) takes its number as a decision
-- does, so that all races between them are one race (I4). A cancel or an abort withdraws the run's calls of which nothing
-- was sent, in the same transaction; what may have happened stays open until it is settled (I16). A caller under
-- REPEATABLE READ can get 40001: its usual retry.
CREATE FUNCTION commit_step(
  p_run text, p_n int, p_kind text, p_reply json, p_messages json, p_shown json, p_calls json, p_note json, p_width int,
  p_positions int[], p_tools text[], p_args jsonb[], p_digests bytea[], p_payloads bytea[], p_order_keys text[],
  p_while_open boolean, p_again boolean, p_traceparent text,
  OUT verdict text, OUT detail text, OUT ids uuid[],
  OUT stored_positions int[], OUT stored_tools text[], OUT stored_args jsonb[], OUT stored_digests bytea[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
-- By keys alone: a plan made while the tables were small would scan them at every step until they are analyzed.
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  previous record;
  earlier text[];  -- the keys of calls that may be open
  open_step int;  -- the earliest with an open call
  open_key text;
  same_key text;
BEGIN
  IF p_n = 0 THEN
    INSERT INTO run (id) VALUES (p_run) ON CONFLICT DO NOTHING;
  ELSE
    SELECT p.open_from, p.kind, p.width, r.status INTO previous
    FROM run r LEFT JOIN step p ON p.run_id = r.id AND p.n = p_n - 1 WHERE r.id = p_run;
    IF NOT FOUND THEN verdict := 'unknown'; RETURN; END IF;
    IF previous.kind IS NULL THEN verdict := 'gap'; RETURN; END IF;
    -- Only positions since the earliest step that had open calls are looked at: the cost does not grow with the run.
    IF previous.width > 0 OR previous.open_from < p_n - 1 THEN
      earlier := ARRAY(SELECT p_run || ':' || s.n || ':' || c FROM step s, generate_series(0, s.width - 1) c
                       WHERE s.run_id = p_run AND s.n BETWEEN previous.open_from AND p_n - 1);
      SELECT min(a.step), (array_agg(a.key ORDER BY a.step, a.call))[1] INTO open_step, open_key
      FROM action a JOIN outcome o ON o.action_id = a.id
      WHERE a.key = ANY (earlier) AND o.status IN ('held', 'pending', 'running', 'retry', 'in_doubt');
    END IF;
    IF open_step IS NOT NULL AND p_while_open AND NOT p_again THEN
      SELECT (array_agg(a.key ORDER BY a.step, a.call))[1] INTO same_key
      FROM action a JOIN outcome o ON o.action_id = a.id
      JOIN unnest(p_tools, p_digests) AS c(tool, digest) ON c.tool = a.tool AND c.digest = a.digest
      WHERE a.key = ANY (earlier) AND o.status IN ('held', 'pending', 'running', 'retry', 'in_doubt');
    END IF;
    verdict := CASE
      WHEN previous.status <> 'running' OR previous.kind = 'abort' THEN 'closed'
      WHEN open_step IS NOT NULL AND NOT p_while_open THEN 'open'
      WHEN same_key IS NOT NULL THEN 'repeated'
    END;
    detail := CASE verdict WHEN 'open' THEN open_key WHEN 'repeated' THEN same_key END;
  END IF;

  IF verdict IS NULL THEN
    -- Everything hangs on the step's row: whoever inserts it is its one author, the other gets nothing of this.
    WITH journal AS (
      INSERT INTO step AS s (run_id, n, kind, reply, messages, shown, calls, note, width, open_from)
      VALUES (p_run, p_n, p_kind, p_reply, p_messages, p_shown, p_calls, p_note, p_width,
              coalesce(open_step, p_n))
      ON CONFLICT DO NOTHING RETURNING s
    ), decided AS MATERIALIZED (
      SELECT uuidv7() AS id, p_run || ':' || p_n || ':' || c.call AS key, c.*
      FROM journal, unnest(p_positions, p_tools, p_args, p_digests, p_payloads, p_order_keys)
        AS c(call, tool, args, digest, payload, order_key)
    ), handed AS (
      -- The order chain: by an upsert, never by id (ids and commits disagree in order).
      INSERT INTO tail AS t (tool, order_key, last)
      SELECT tool, order_key, (array_agg(id ORDER BY call DESC))[1] FROM decided
      WHERE order_key IS NOT NULL GROUP BY tool, order_key ORDER BY tool, order_key
      ON CONFLICT (tool, order_key) DO UPDATE SET prev = t.last, last = excluded.last
      RETURNING t.tool, t.order_key, t.prev
    ), linked AS (
      SELECT d.*, CASE WHEN d.order_key IS NOT NULL
                       THEN coalesce(lag(d.id) OVER (PARTITION BY d.tool, d.order_key ORDER BY d.call), h.prev) END AS after
      FROM decided d LEFT JOIN handed h ON h.tool = d.tool AND h.order_key = d.order_key
    ), written AS (
      INSERT INTO action (id, key, run_id, step, call, tool, args, digest, after)
      SELECT id, key, p_run, p_n, call, tool, args, digest, after FROM linked
    ), expected AS (
      INSERT INTO outcome (action_id, tool, after) SELECT id, tool, after FROM linked
    ), emitted AS (
      INSERT INTO outbox (id, aggregatetype, aggregateid, type, action_id, key, attempt, traceparent, payload)
      SELECT id, tool, coalesce(order_key, id::text), 'call', id, key, 1, p_traceparent, payload FROM decided
    ), told AS (
      INSERT INTO outbox (aggregatetype, aggregateid, type, key, traceparent, payload)
      SELECT '_step', p_run, 'step', p_run || ':' || p_n, p_traceparent, step_event(s)
      FROM journal, box WHERE box.step_events
    )
    SELECT CASE WHEN EXISTS (SELECT FROM journal) THEN 'fresh' END,
           (SELECT coalesce(array_agg(id ORDER BY call), '{}') FROM decided)
    INTO verdict, ids;
    IF verdict = 'fresh' AND p_n > 0 AND p_kind <> 'decision' THEN
      IF p_kind IN ('cancel', 'abort') AND open_step IS NOT NULL THEN
        PERFORM withdraw(earlier, coalesce(p_note ->> 'reason', p_kind));
      END IF;
      PERFORM pg_notify(current_schema(), p_run);  -- whoever waits for its calls is to read this
    END IF;
  END IF;

  IF verdict IS DISTINCT FROM 'fresh' AND EXISTS (SELECT FROM step WHERE run_id = p_run AND n = p_n) THEN
    -- A later statement, hence a newer snapshot: it sees the winner.
    verdict := 'taken';
    SELECT s.kind INTO detail FROM step s WHERE s.run_id = p_run AND s.n = p_n;
    SELECT array_agg(a.call ORDER BY a.call), array_agg(a.tool ORDER BY a.call),
           array_agg(a.args ORDER BY a.call), array_agg(a.digest ORDER BY a.call)
    INTO stored_positions, stored_tools, stored_args, stored_digests
    FROM step s, generate_series(0, s.width - 1) c JOIN action a ON a.key = p_run || ':' || p_n || ':' || c
    WHERE s.run_id = p_run AND s.n = p_n;
  END IF;
END $$;

-- What became of calls: how an attempt ended, what follows from it, and who is told.

-- Emit calls (again): the bytes are those of the first emission, or wait in the action (I13).
CREATE FUNCTION emit(p_ids uuid[]) RETURNS void LANGUAGE sql SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
  INSERT INTO outbox (aggregatetype, aggregateid, type, action_id, key, attempt, traceparent, payload)
  SELECT a.tool, coalesce(b.aggregateid, a.id::text), CASE WHEN o.probe THEN 'probe' ELSE a.kind END, a.id, a.key, o.attempt + 1,
         b.traceparent, coalesce(a.payload, b.payload)
  FROM unnest(p_ids) AS w(id) JOIN action a ON a.id = w.id JOIN outcome o ON o.action_id = a.id LEFT JOIN outbox b ON b.id = a.id
  ORDER BY a.id
$$;

-- Tell who waits: outcomes that became final or in doubt leave as events; who gave up becomes a dead letter; what was let
-- go behind them is due; and one notice per batch wakes the agents, naming the runs while that is short.
CREATE FUNCTION announce(p_ids uuid[]) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  runs text;
BEGIN
  WITH news AS MATERIALIZED (
    SELECT a.id, a.key, a.run_id, a.tool, o.attempt, o.status, o.error,
           result_event(o.status, o.attempt, o.result::text, o.error::text, o.first_sent_at,
                        coalesce(o.finished_at, clock_timestamp())) AS payload
    FROM unnest(p_ids) AS w(id) JOIN action a ON a.id = w.id JOIN outcome o ON o.action_id = a.id
  ), told AS (
    INSERT INTO outbox (aggregatetype, aggregateid, type, action_id, key, attempt, payload)
    SELECT '_result', id::text, 'result', id, key, attempt, payload FROM news
    UNION ALL SELECT '_dead', id::text, 'dead', id, key, attempt, payload FROM news WHERE status = 'gave_up'
  ), buried AS (
    INSERT INTO dead (action_id, key, tool, attempt, reason, happened)
    SELECT id, key, tool, attempt, coalesce(error ->> 'reason', ''), coalesce((error ->> 'happened')::boolean, false)
    FROM news WHERE status = 'gave_up'
    ON CONFLICT DO NOTHING
  )
  SELECT string_agg(DISTINCT run_id, ',') INTO runs FROM news;
  UPDATE outcome o SET next_at = clock_timestamp()
  WHERE o.after = ANY (p_ids) AND o.status = 'pending' AND o.next_at IS NOT NULL;
  IF runs IS NOT NULL THEN
    PERFORM pg_notify(current_schema(), CASE WHEN octet_length(runs) < 7900 THEN runs ELSE '' END);
  END IF;
END $$;

-- An attempt of these running calls ended without an answer: what now? The one place that decides it (I7, I9, I16), for
-- the workers' reports and for what the dead left behind. How it ended:
--   retry     nothing happened in this attempt        unknown      it may have happened
--   absent    a probe found that it did not happen    cannot_tell  a probe found nothing out
--   stored    the provider replays a failure that it stored under this key: the same key gets no other answer
-- What comes of it is never a final word while it may have happened. A lane (p_lane) goes on itself with what is due
-- within five seconds: that becomes pending and is not emitted.
CREATE FUNCTION end_attempt(p_ids uuid[], p_ends text[], p_errors json[], p_delays interval[], p_lane boolean)
RETURNS TABLE (id uuid, status text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := clock_timestamp();
  changed record;
  emitted uuid[];
  told uuid[];
BEGIN
  FOR changed IN
    WITH facts AS (
      SELECT o.action_id, s.ending, s.error, o.attempt - o.spent AS sends, t.attempts, s.due, t.settle_after IS NOT NULL AS probed,
        o.probe AS asked, o.claimed_at AS asked_at, o.probes, o.unsettled OR s.ending IN ('unknown', 'stored') AS doubt,
        o.error ->> 'stored' IS NOT NULL AS stored,
        t.effect = 'repeatable' AS harmless, t.key_window IS NULL AS unkeyed,
        coalesce(s.due + t.deadline + t.key_margin < o.first_sent_at + t.key_window, false) AS keyed,
        coalesce(o.since, o.first_sent_at) + t.give_up_after AS until,
        coalesce(s.due < uuid_time(o.action_id) + t.expires, true) AS wanted,
        coalesce(o.until + coalesce(t.settle_after, interval '10 min'), moment) AS settles_at,
        k.status AS known, k.result AS known_result, k.error AS known_error
      FROM (SELECT id, ending, error, moment + coalesce(delay, interval '0') AS due
            FROM unnest(p_ids, p_ends, p_errors, p_delays) AS u(id, ending, error, delay)) s
      JOIN outcome o ON o.action_id = s.id JOIN tool t ON t.name = o.tool
      -- What the attempt that is asked about has said itself in the meantime.
      LEFT JOIN LATERAL (SELECT l.status, l.result, l.error FROM late l WHERE o.probe AND l.action_id = o.action_id AND l.attempt >= o.performed
                           AND (l.status = 'done' OR l.status = 'gave_up' AND l.error ->> 'happened' IS NOT NULL) LIMIT 1) k ON true
      WHERE o.status = 'running'
      ORDER BY o.action_id FOR UPDATE OF o
    ), budgeted AS (
      SELECT f.*, f.sends < f.attempts AND f.due < f.until AND f.wanted AS budget,
             -- It counts when the probe was asked, not when its answer came: a request may have arrived in between.
             coalesce(f.ending = 'absent' AND f.asked AND f.asked_at >= f.settles_at, false) AS settled
      FROM facts f
    ), judged AS (
      SELECT b.*, CASE
        WHEN b.known IS NOT NULL THEN 'known'
        -- It asked. Before a late request can no longer arrive, "it did not happen" allows only what its key would catch.
        WHEN b.settled THEN CASE WHEN b.budget THEN 'send' ELSE 'give up' END
        WHEN b.asked AND b.ending = 'absent' THEN CASE WHEN b.budget AND b.keyed AND NOT b.stored THEN 'send' ELSE 'ask when settled' END
        WHEN b.asked AND b.ending <> 'cannot_tell' AND b.probes < 5 THEN 'ask'  -- whoever asked was cut off
        WHEN b.asked THEN 'doubt'
        -- It performed.
        WHEN b.budget AND NOT b.doubt AND (b.unkeyed OR b.keyed OR b.probed) THEN 'send'
        WHEN b.budget AND b.doubt AND b.ending <> 'stored' AND (b.harmless OR b.keyed) THEN 'send'
        WHEN b.doubt AND b.probed THEN 'ask'
        WHEN b.doubt THEN 'doubt'
        ELSE 'give up' END AS then,
        -- 1, 2, 4 … seconds, up to an hour.
        greatest(b.due, moment + CASE WHEN b.asked THEN least(interval '1 s' * 2 ^ least(b.probes - 1, 12), interval '1 h') ELSE interval '0' END) AS again_at
      FROM budgeted b
    ), timed AS (
      SELECT j.*, CASE j.then
          WHEN 'ask when settled' THEN 'retry'
          WHEN 'doubt' THEN 'in_doubt'
          WHEN 'give up' THEN 'gave_up'
          WHEN 'known' THEN j.known
          ELSE CASE WHEN j.again_at < moment + interval '5 s' OR NOT p_lane AND j.again_at <= moment THEN 'pending' ELSE 'retry' END
        END AS becomes
      FROM judged j
    )
    UPDATE outcome o SET
      status = d.becomes,
      owner = CASE WHEN p_lane THEN o.owner END,
      performed = CASE WHEN d.asked OR d.ending = 'retry' THEN o.performed ELSE o.attempt END,
      unsettled = d.doubt AND NOT d.settled AND d.then <> 'known',
      probe = d.then IN ('ask', 'ask when settled') OR d.then = 'doubt' AND d.asked,
      -- The same key would only get the stored failure again, and it is known now that nothing happened.
      rekeyed = CASE WHEN d.settled AND d.stored AND d.then = 'send' THEN o.rekeyed + 1 ELSE o.rekeyed END,
      first_sent_at = CASE WHEN d.settled AND d.stored AND d.then = 'send' THEN NULL ELSE o.first_sent_at END,
      next_at = CASE
          WHEN d.then = 'ask when settled' THEN d.settles_at
          WHEN d.becomes = 'pending' THEN moment + interval '1 min'  -- parked: its id may lie below the watermark
          WHEN d.becomes = 'retry' THEN d.again_at
          WHEN d.then = 'doubt' AND d.asked AND d.again_at < d.until THEN d.again_at
          WHEN d.then = 'doubt' THEN 'infinity'
        END,
      finished_at = CASE WHEN d.becomes IN ('gave_up', 'in_doubt', 'done') THEN moment END,
      result = d.known_result,
      error = CASE
          WHEN d.then = 'known' THEN d.known_error
          WHEN d.asked AND d.stored AND NOT d.settled THEN (coalesce(d.error::jsonb, '{}') || '{"stored": true}')::json
          WHEN d.then <> 'give up' THEN d.error
          ELSE (coalesce(d.error::jsonb, '{}') || jsonb_build_object('reason',
                  CASE WHEN d.sends >= d.attempts THEN format('after %s attempts: ', d.sends)
                       WHEN NOT d.wanted THEN 'its deadline passed: '
                       WHEN d.due >= d.until THEN 'it is too old to be tried again: '
                       ELSE 'the window of its key is over: ' END
                  || coalesce(d.error ->> 'reason', CASE d.ending WHEN 'absent' THEN 'a probe found that it did not happen' ELSE d.ending END)))::json
        END
    FROM timed d WHERE o.action_id = d.action_id
    RETURNING o.action_id, o.tool, o.status, o.rekeyed, d.settled AND d.stored AND d.then = 'send' AS rekeys
  LOOP
    IF changed.rekeys THEN
      INSERT INTO audit (who, verb, tool, action_id, key, note, became)
      SELECT 'deedbox', 'rekey', changed.tool, a.id, a.key, 'its key held a stored failure, and a probe found that it did not happen',
             json_build_object('rekeyed', changed.rekeyed) FROM action a WHERE a.id = changed.action_id;
    END IF;
    IF changed.status = 'pending' AND NOT p_lane THEN emitted := emitted || changed.action_id; END IF;
    IF changed.status IN ('gave_up', 'in_doubt', 'done') THEN told := told || changed.action_id; END IF;
    id := changed.action_id; status := changed.status;
    RETURN NEXT;
  END LOOP;
  IF emitted IS NOT NULL THEN PERFORM emit(emitted); END IF;
  IF told IS NOT NULL THEN PERFORM announce(told); END IF;
END $$;

-- Record what became of claimed calls. For each id: recorded, already (this very report was recorded before: repeating
-- is harmless), late (fenced off by a newer owner or attempt, I8: kept in late; what the last attempt that performed
-- knows settles its doubt, also while a repeat or a probe waits to be claimed) or alarm (late, and an effect of a call
-- that was closed without one, or is performed anew as if there were none), with the status that it has now.
--   p_statuses   done · refused · gave_up (it happened, its result cannot be kept) · pending (given back, never sent) ·
--                or how it ended without an answer: retry · unknown · stored · absent · cannot_tell (end_attempt)
--   p_unsettled  of the first three: false, this answer settles all attempts; null, as it was
--   p_delays     before it is tried again
-- An outcome that cannot be final while unsettled becomes in doubt (I16).
CREATE FUNCTION finish(p_owner uuid, p_ids uuid[], p_attempts int[], p_statuses text[], p_results json[], p_errors json[],
                       p_unsettled boolean[], p_delays interval[])
RETURNS TABLE (id uuid, verdict text, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  answers CONSTANT text[] := ARRAY['done', 'refused', 'gave_up', 'pending'];
  recorded uuid[];
  closed uuid[];
  given_back uuid[];
  settled uuid[];
  told_late uuid[];
  alarmed uuid[];
  ended record;
BEGIN
  IF (SELECT count(DISTINCT id) FROM unnest(p_ids) AS x(id)) < cardinality(p_ids) THEN
    RAISE EXCEPTION 'a call stands twice in one report: report each attempt in a statement of its own' USING ERRCODE = '22023';
  END IF;
  IF NOT p_statuses <@ (answers || ARRAY['retry', 'unknown', 'stored', 'absent', 'cannot_tell']) THEN
    RAISE EXCEPTION 'a worker reports done, refused, gave_up, pending, retry, unknown, stored, absent or cannot_tell, not %', p_statuses USING ERRCODE = '22023';
  END IF;
  PERFORM e::jsonb FROM unnest(p_errors) AS e;  -- what is no jsonb, such as a NUL, could never be looked into again
  WITH said AS MATERIALIZED (
    SELECT * FROM unnest(p_ids, p_attempts, p_statuses, p_results, p_errors, p_unsettled)
      AS s(id, attempt, status, result, error, unsettled) WHERE s.status = ANY (answers) ORDER BY id
  ), written AS (
    UPDATE outcome o
    SET owner = CASE WHEN s.status <> 'pending' THEN o.owner END,
        status = CASE WHEN s.status <> 'pending' AND coalesce(s.unsettled, o.unsettled) THEN 'in_doubt' ELSE s.status END,
        performed = CASE WHEN s.status = 'pending' OR o.probe THEN o.performed ELSE o.attempt END,
        unsettled = coalesce(s.unsettled, o.unsettled),
        spent = CASE WHEN s.status = 'pending' AND NOT o.probe THEN o.spent + 1 ELSE o.spent END,
        probe = s.status = 'pending' AND o.probe,
        result = s.result,
        error = CASE WHEN s.status = 'pending' THEN o.error ELSE s.error END,  -- a stored failure stays one
        finished_at = CASE WHEN s.status <> 'pending' THEN clock_timestamp() END,
        next_at = CASE
          WHEN s.status = 'pending' THEN clock_timestamp() + interval '1 min'  -- parked: its id may lie below the watermark
          WHEN coalesce(s.unsettled, o.unsettled) THEN 'infinity'
        END
    FROM said s
    WHERE o.action_id = s.id AND o.owner = p_owner AND o.attempt = s.attempt AND o.status = 'running'
    RETURNING o.action_id, o.status
  )
  SELECT array_agg(action_id), array_agg(action_id) FILTER (WHERE status <> 'pending'), array_agg(action_id) FILTER (WHERE status = 'pending')
  INTO recorded, closed, given_back FROM written;

  IF NOT p_statuses <@ answers THEN
    -- Fenced here, under the lock that end_attempt takes again.
    SELECT array_agg(f.id) AS ids, array_agg(f.status) AS ends, array_agg(f.error) AS errors, array_agg(f.delay) AS delays INTO ended
    FROM (SELECT s.* FROM unnest(p_ids, p_attempts, p_statuses, p_errors, p_delays) AS s(id, attempt, status, error, delay)
          JOIN outcome o ON o.action_id = s.id
          WHERE s.status <> ALL (answers) AND o.owner = p_owner AND o.attempt = s.attempt AND o.status = 'running'
          ORDER BY s.id FOR UPDATE OF o) f;
    PERFORM end_attempt(ended.ids, ended.ends, ended.errors, ended.delays, true);
    recorded := recorded || ended.ids;
  END IF;

  IF coalesce(cardinality(recorded), 0) < cardinality(p_ids) THEN
    -- Locked in a statement of its own, so that what follows is judged by what a person has just done to them.
    PERFORM FROM outcome o WHERE o.action_id = ANY (p_ids) AND NOT o.action_id = ANY (coalesce(recorded, '{}')) ORDER BY o.action_id FOR UPDATE;
    WITH said AS MATERIALIZED (
      SELECT *, status = 'done' OR status = 'gave_up' AND error ->> 'happened' IS NOT NULL AS effect
      FROM unnest(p_ids, p_attempts, p_statuses, p_results, p_errors, p_unsettled)
        AS s(id, attempt, status, result, error, unsettled) WHERE NOT s.id = ANY (coalesce(recorded, '{}')) ORDER BY id
    ), doubt AS (
      UPDATE outcome o SET status = s.status, unsettled = false, probe = false, owner = p_owner, result = s.result, error = s.error,
                           finished_at = clock_timestamp(), next_at = NULL
      FROM said s
      WHERE o.action_id = s.id AND s.attempt BETWEEN 1 AND o.attempt
        AND (s.attempt = o.performed OR s.effect AND s.attempt > o.performed)  -- no newer attempt may have sent
        -- Also where a person thought that it had not happened, and put it back to work.
        AND o.status IN ('in_doubt', 'pending', 'retry') AND (o.unsettled OR s.effect)
        -- A no that is not about every attempt is about the only one in doubt, unless an earlier one may be.
        AND (s.effect OR s.status IN ('refused', 'gave_up') AND NOT s.unsettled
             OR s.status = 'refused' AND EXISTS (SELECT FROM tool t WHERE t.name = o.tool AND t.effect IN ('probe', 'unrepeatable')))
      RETURNING o.action_id
    ), kept AS (
      INSERT INTO late (action_id, attempt, owner, status, result, error, settled, alarm)
      SELECT s.id, s.attempt, p_owner, s.status, s.result, s.error, s.id IN (SELECT action_id FROM doubt),
             s.effect AND EXISTS (
               SELECT FROM outcome o JOIN tool t ON t.name = o.tool WHERE o.action_id = s.id AND (
                 o.status IN ('refused', 'gave_up', 'rejected', 'cancelled') AND o.error ->> 'happened' IS NULL
                 -- Or this attempt was closed as one that did nothing, another performs, and no key makes one of the two.
                 OR s.attempt < CASE WHEN o.status = 'running' AND NOT o.probe THEN o.attempt ELSE o.performed END
                    AND (o.rekeyed > 0 OR t.key_window IS NULL AND t.effect <> 'repeatable'
                         OR o.until + t.key_margin >= o.first_sent_at + t.key_window)))
      FROM said s
      -- Of its own attempt only an answer that is not the one that is recorded: a thread may know it after the deadline.
      WHERE s.status <> 'pending' AND NOT EXISTS (SELECT FROM outcome o WHERE o.action_id = s.id AND o.owner = p_owner
              AND o.attempt = s.attempt AND o.status <> 'running'
              AND (s.status <> ALL (answers) OR (o.result::text, o.error::text) IS NOT DISTINCT FROM (s.result::text, s.error::text)))
        AND NOT EXISTS (SELECT FROM late l WHERE l.action_id = s.id AND l.attempt = s.attempt AND l.owner = p_owner
              AND (l.status, l.result::text, l.error::text) IS NOT DISTINCT FROM (s.status, s.result::text, s.error::text))
      RETURNING action_id, alarm
    )
    SELECT (SELECT array_agg(action_id) FROM doubt), (SELECT array_agg(action_id) FROM kept),
           (SELECT array_agg(action_id) FROM kept WHERE alarm) INTO settled, told_late, alarmed;
    -- Nobody is to give a new key to what happened.
    UPDATE dead d SET happened = true WHERE d.action_id = ANY (alarmed) AND d.closed_at IS NULL;
  END IF;

  IF given_back IS NOT NULL THEN PERFORM emit(given_back); END IF;
  IF closed IS NOT NULL OR settled IS NOT NULL THEN PERFORM announce(closed || settled); END IF;

  RETURN QUERY
  SELECT s.id, CASE
      WHEN s.id = ANY (recorded) THEN 'recorded'
      WHEN s.id = ANY (alarmed) THEN 'alarm'
      WHEN o.owner = p_owner AND o.attempt = s.attempt AND o.status <> 'running' AND NOT s.id = ANY (coalesce(told_late, '{}')) THEN 'already'
      ELSE 'late'
    END, o.status
  FROM unnest(p_ids, p_attempts, p_statuses) AS s(id, attempt, status) LEFT JOIN outcome o ON o.action_id = s.id;
END $$;

-- What a person does to calls by hand. Each act is one transaction and leaves a row of the audit (I10); saying it twice
-- is harmless, the second time says why nothing was done.

-- Who acts: a name that is not the ledger's own.
CREATE FUNCTION person(p_who text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF p_who = 'deedbox' THEN
    RAISE EXCEPTION 'deedbox is who the ledger itself is in the audit: give a name of your own' USING ERRCODE = '22023';
  END IF;
  RETURN p_who;
END $$;

-- Write down an act on a call; p_was is its outcome before.
CREATE FUNCTION note(p_verb text, p_id uuid, p_who text, p_note text, p_was outcome) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
  INSERT INTO audit (who, verb, tool, action_id, key, note, was, became)
  SELECT person(p_who), p_verb, a.tool, a.id, a.key, p_note, row_to_json(p_was), row_to_json(o)
  FROM action a JOIN outcome o ON o.action_id = a.id WHERE a.id = p_id
$$;

-- Say what became of a call that is in doubt: p_happened is its result, or null when it did not happen. What it answers:
--   done       it is closed with that result; so is a call that gave up although its effect is there
--   gave_up    it did not happen: a dead letter, which can be redriven
--   running    an attempt is under way: wait for its end        settled  there is no doubt about it
--   unknown    there is no such call
CREATE FUNCTION resolve(p_key text, p_happened json, p_who text, p_note text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  o outcome;
BEGIN
  IF json_typeof(p_happened) <> 'object' THEN
    RAISE EXCEPTION 'the result of a call is a JSON object, not %', json_typeof(p_happened) USING ERRCODE = '22023';
  END IF;
  SELECT x.* INTO o FROM outcome x JOIN action a ON a.id = x.action_id WHERE a.key = p_key FOR UPDATE OF x;
  IF NOT FOUND THEN RETURN 'unknown'; END IF;
  IF o.status = 'running' THEN RETURN 'running'; END IF;
  IF o.unsettled THEN
    UPDATE outcome x SET
      status = CASE WHEN p_happened IS NULL THEN 'gave_up' ELSE 'done' END,
      unsettled = false, probe = false, owner = NULL, next_at = NULL, finished_at = clock_timestamp(), result = p_happened,
      error = CASE WHEN p_happened IS NULL THEN json_build_object('reason', 'it did not happen, says ' || p_who || coalesce(': ' || p_note, '')) END
    WHERE x.action_id = o.action_id;
  ELSIF o.status = 'gave_up' AND p_happened IS NOT NULL THEN
    UPDATE outcome x SET status = 'done', finished_at = clock_timestamp(), result = p_happened, error = NULL WHERE x.action_id = o.action_id;
    UPDATE dead SET closed_at = clock_timestamp(), closed_as = 'resolved', closed_by = p_who WHERE action_id = o.action_id AND closed_at IS NULL;
  ELSE
    RETURN 'settled';
  END IF;
  PERFORM note('resolve', o.action_id, p_who, p_note, o);
  PERFORM announce(ARRAY[o.action_id]);
  RETURN CASE WHEN p_happened IS NULL THEN 'gave_up' ELSE 'done' END;
END $$;

-- Whether these calls can be put back to work now, under the same key or under a new one (p_rekey). For each: redriven
-- (it can), or why not:
--   not_dead     it did not give up, or is back at work
--   closed       its letter was dropped: that is for good
--   happened     its effect is there: performing it again would do it twice, or its answer cannot be had; resolve it with its result
--   expired      its deadline has passed: nobody wants it any more
--   window_over  the provider may have forgotten its key by now: give it a new one, if it surely did not happen
--   pruned       its bytes are gone
CREATE FUNCTION redrivable(p_ids uuid[], p_rekey boolean) RETURNS TABLE (id uuid, verdict text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT f.id, CASE
      WHEN f.status = 'gave_up' AND f.happened IS NULL THEN 'closed'
      WHEN f.status IS DISTINCT FROM 'gave_up' THEN 'not_dead'
      WHEN f.happened AND (p_rekey OR f.expired OR f.window_over OR f.effect <> 'repeatable' AND f.unkeyed) THEN 'happened'
      WHEN f.expired THEN 'expired'
      WHEN f.window_over AND NOT p_rekey THEN 'window_over'
      WHEN NOT EXISTS (SELECT FROM outbox b WHERE b.id = f.id)
           AND NOT EXISTS (SELECT FROM action a WHERE a.id = f.id AND a.payload IS NOT NULL) THEN 'pruned'
      ELSE 'redriven' END
  FROM (SELECT w.id, o.status, d.happened, t.effect, t.key_window IS NULL AS unkeyed,
               coalesce(clock_timestamp() >= uuid_time(w.id) + t.expires, false) AS expired,
               coalesce(clock_timestamp() + t.deadline + t.key_margin >= o.first_sent_at + t.key_window, false) AS window_over
        FROM (SELECT DISTINCT unnest(p_ids) AS id) w
        LEFT JOIN outcome o ON o.action_id = w.id LEFT JOIN tool t ON t.name = o.tool
        LEFT JOIN dead d ON d.action_id = w.id AND d.closed_at IS NULL) f
$$;

-- Where those behind a call that gave up have gone on, it takes its place anew, at the end of its order: two of one order
-- never run at once. Nothing is moved while the next one has not begun, and the next one's row is ours, so that it cannot
-- begin meanwhile.
CREATE FUNCTION line_up(p_id uuid) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  next_one record;
  last_one uuid;
BEGIN
  SELECT o.action_id, o.attempt > 0 OR o.status NOT IN ('held', 'pending') AS begun INTO next_one
  FROM outcome o WHERE o.after = p_id FOR UPDATE;
  IF NOT FOUND OR NOT next_one.begun THEN RETURN; END IF;
  INSERT INTO tail AS t (tool, order_key, last)
  SELECT b.aggregatetype, b.aggregateid, p_id FROM outbox b WHERE b.id = p_id
  ON CONFLICT (tool, order_key) DO UPDATE SET prev = t.last, last = excluded.last
  RETURNING t.prev INTO last_one;
  UPDATE outcome o SET after = (SELECT x.after FROM outcome x WHERE x.action_id = p_id) WHERE o.action_id = next_one.action_id;
  UPDATE outcome o SET after = last_one WHERE o.action_id = p_id;
END $$;

-- Put dead letters back to work: the verdicts are those of redrivable.
CREATE FUNCTION redrive(p_ids uuid[], p_rekey boolean, p_who text, p_note text) RETURNS TABLE (id uuid, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  o outcome;
  again uuid[];
BEGIN
  -- The ends of their orders first, as a commit takes them: nobody waits for us who has what we wait for.
  PERFORM FROM tail t WHERE (t.tool, t.order_key) IN (SELECT b.aggregatetype, b.aggregateid FROM outbox b WHERE b.id = ANY (p_ids))
  ORDER BY t.tool, t.order_key FOR UPDATE;
  PERFORM FROM outcome x WHERE x.action_id = ANY (p_ids) ORDER BY x.action_id FOR UPDATE;
  FOR id, verdict IN SELECT r.id, r.verdict FROM redrivable(p_ids, p_rekey) r ORDER BY r.id LOOP
    IF verdict = 'redriven' THEN
      SELECT x.* INTO o FROM outcome x WHERE x.action_id = redrive.id;
      UPDATE outcome x SET
        status = 'pending', owner = NULL, probe = false, spent = x.attempt, since = clock_timestamp(),
        -- Of what happened only the answer is wanted: until it is there, no other end is the truth (I16).
        unsettled = EXISTS (SELECT FROM dead d WHERE d.action_id = x.action_id AND d.closed_at IS NULL AND d.happened),
        rekeyed = CASE WHEN p_rekey THEN x.rekeyed + 1 ELSE x.rekeyed END,
        first_sent_at = CASE WHEN p_rekey THEN NULL ELSE x.first_sent_at END,
        next_at = clock_timestamp() + interval '1 min', finished_at = NULL, result = NULL, error = NULL
      WHERE x.action_id = redrive.id;
      UPDATE dead d SET closed_at = clock_timestamp(), closed_as = 'redriven', closed_by = p_who
      WHERE d.action_id = redrive.id AND d.closed_at IS NULL;
      PERFORM line_up(redrive.id);
      PERFORM note(CASE WHEN p_rekey THEN 'rekey' ELSE 'redrive' END, redrive.id, p_who, p_note, o);
      again := again || redrive.id;
    END IF;
    RETURN NEXT;
  END LOOP;
  IF again IS NOT NULL THEN PERFORM emit(again); END IF;
END $$;

-- What dropping these calls would be: dropped (an open dead letter), passed (no letter, but it stands in the way of an
-- order that stops), or not_dead.
CREATE FUNCTION droppable(p_ids uuid[]) RETURNS TABLE (id uuid, verdict text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT w.id, CASE
      WHEN o.status = 'gave_up' AND EXISTS (SELECT FROM dead d WHERE d.action_id = w.id AND d.closed_at IS NULL) THEN 'dropped'
      WHEN o.status = 'refused' AND o.passed IS NULL AND t.order_stops THEN 'passed'
      ELSE 'not_dead' END
  FROM (SELECT DISTINCT unnest(p_ids) AS id) w
  LEFT JOIN outcome o ON o.action_id = w.id LEFT JOIN tool t ON t.name = o.tool
$$;

-- Let calls behind one that gave up or was refused go on, where the tool's order stops for these; and, if it is a dead
-- letter, deal with it no more: the verdicts are those of droppable.
CREATE FUNCTION drop_dead(p_ids uuid[], p_who text, p_note text) RETURNS TABLE (id uuid, verdict text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  o outcome;
BEGIN
  PERFORM FROM outcome x WHERE x.action_id = ANY (p_ids) ORDER BY x.action_id FOR UPDATE;
  FOR id, verdict IN SELECT r.id, r.verdict FROM droppable(p_ids) r ORDER BY r.id LOOP
    IF verdict <> 'not_dead' THEN
      SELECT x.* INTO o FROM outcome x WHERE x.action_id = drop_dead.id;
      UPDATE dead d SET closed_at = clock_timestamp(), closed_as = 'dropped', closed_by = p_who
      WHERE d.action_id = drop_dead.id AND d.closed_at IS NULL;
      UPDATE outcome x SET passed = true WHERE x.action_id = drop_dead.id;
      UPDATE outcome x SET next_at = clock_timestamp()
      WHERE x.after = drop_dead.id AND x.status = 'pending' AND x.next_at IS NOT NULL;
      PERFORM note('drop', drop_dead.id, p_who, p_note, o);
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Stop claiming calls of a tool, or go on (p_paused false). Calls under way are not touched. False: there is no such tool.
CREATE FUNCTION pause(p_tool text, p_paused boolean, p_who text, p_note text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  before tool;
BEGIN
  -- No stronger lock: it would wait for every agent's open transaction with a call of this tool.
  SELECT t.* INTO before FROM tool t WHERE t.name = p_tool FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF before.paused <> p_paused THEN
    UPDATE tool SET paused = p_paused WHERE name = p_tool;
    INSERT INTO audit (who, verb, tool, note) VALUES (person(p_who), CASE WHEN p_paused THEN 'pause' ELSE 'resume' END, p_tool, p_note);
  END IF;
  RETURN true;
END $$;

-- Verbs are for the roles that are granted them.
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
  END LOOP;
END $$;

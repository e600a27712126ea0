-- The roles of a box: what each may do, and no more. Run by `deedbox init --roles`, again and again without harm.
-- Logging in is the DBA's affair: grant {prefix}_agent and {prefix}_worker to your own login roles. Only the
-- connector's role logs in itself, since REPLICATION is not inherited.
DO $$
DECLARE
  prefix text := (SELECT b.prefix FROM box b);
  here text := current_schema();
  role text;
BEGIN
  FOREACH role IN ARRAY ARRAY['agent', 'worker', 'operator', 'connect'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = prefix || '_' || role) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', prefix || '_' || role);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', here, prefix || '_' || role);
  END LOOP;

  -- An agent decides and reads. It cannot touch an outcome.
  EXECUTE format('GRANT SELECT ON box, tool, topic, avro, run, step, action, outcome, agent_actions TO %I', prefix || '_agent');
  EXECUTE format('GRANT EXECUTE ON FUNCTION commit_step, uuid_time TO %I', prefix || '_agent');

  -- A worker claims and finishes. It cannot decide, and reads calls only through the verbs.
  EXECUTE format('GRANT SELECT ON box, tool, topic, avro TO %I', prefix || '_worker');
  EXECUTE format('GRANT EXECUTE ON FUNCTION enlist, renew, resign, claim, finish, let_go, records, pending, set_aside, sweep, uuid_floor TO %I',
                 prefix || '_worker');

  -- An operator sees everything and acts by the audited verbs.
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', here, prefix || '_operator');
  EXECUTE format('GRANT EXECUTE ON FUNCTION resolve, redrivable, redrive, droppable, drop_dead, pause, uuid_time, uuid_floor TO %I', prefix || '_operator');

  -- The connector reads the outbox and what a lost slot must emit again.
  EXECUTE format('GRANT SELECT ON outbox, unpublished TO %I', prefix || '_connect');
  IF nullif(current_setting('deedbox.connect_password', true), '') IS NOT NULL THEN
    EXECUTE format('ALTER ROLE %I LOGIN REPLICATION PASSWORD %L', prefix || '_connect', current_setting('deedbox.connect_password'));
  END IF;
END $$;

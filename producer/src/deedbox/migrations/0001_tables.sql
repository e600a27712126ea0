-- The ledger's tables.
--
-- An agent's life is a RUN: a numbered journal of STEPs (messages that came in, replies of the model). A reply asks for
-- tool calls; each is an ACTION, written once with the step and never changed, beside an OUTCOME, the one row that
-- changes. What is to be performed leaves as a row of the OUTBOX, which Debezium streams to Kafka (or a worker reads
-- here). A WORKER claims a call, performs it under its key and finishes it; the SWEEP judges what the dead left behind.
-- All of a step commits in the caller's own transaction, or none of it.
--
-- Nobody has INSERT or UPDATE on these tables: the verbs are the functions of the next files.

DO $$
BEGIN
  -- Ids are the server's own time-ordered UUIDs: agents' clocks differ. PostgreSQL 18 has the function.
  IF current_setting('server_version_num')::int < 180000 THEN
    CREATE FUNCTION uuidv7() RETURNS uuid LANGUAGE sql VOLATILE AS $f$
      SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
    $f$;
  END IF;
END $$;

-- The smallest id that a moment can have.
CREATE FUNCTION uuid_floor(p_at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex((extract(epoch FROM p_at) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid
$$;

-- The moment an id was made, in milliseconds.
CREATE FUNCTION uuid_time(p_id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT to_timestamp(('x0000' || left(replace(p_id::text, '-', ''), 12))::bit(64)::bigint / 1000.0)
$$;

-- One row: this box. Its id is part of every idempotency key, so that a test box never meets production's keys.
CREATE TABLE box (
  one         boolean PRIMARY KEY DEFAULT true CHECK (one),
  id          text NOT NULL CHECK (id ~ '^[a-z0-9]{8}$'),
  prefix      text NOT NULL CHECK (prefix ~ '^[a-z][a-z0-9_]{0,40}$'),
  step_events boolean NOT NULL DEFAULT true,
  watermark   uuid NOT NULL,         -- every open call below it is parked: its next_at says when to look again
  mark_xid    xid8 NOT NULL,         -- transactions up to this one may still bring ids older than mark_at
  mark_at     timestamptz NOT NULL,
  swept_at    timestamptz NOT NULL,  -- of the slower duties of the sweep
  scanned_at  timestamptz NOT NULL,  -- of the full scan
  scanned     uuid,                  -- how far one that is under way has come
  retention   interval NOT NULL DEFAULT '8 days' CHECK (retention >= interval '1 day'),  -- of the outbox: longer than Kafka's
  pruned      uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',  -- the outbox is pruned up to here
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO box (id, prefix, watermark, mark_xid, mark_at, swept_at, scanned_at)
VALUES (left(replace(gen_random_uuid()::text, '-', ''), 8), coalesce(nullif(current_setting('deedbox.prefix', true), ''), current_schema()),
        uuid_floor(clock_timestamp()), pg_current_xact_id(), clock_timestamp(), clock_timestamp(), clock_timestamp());

CREATE TABLE topic (
  name       text PRIMARY KEY CHECK (name ~ '^_?[a-z][a-z0-9_]{0,62}$'),
  partitions int NOT NULL DEFAULT 6 CHECK (partitions > 0)
);
INSERT INTO topic (name, partitions) VALUES ('_step', 6), ('_result', 6), ('_dead', 6), ('_schema', 1), ('_heartbeat', 1);

CREATE TABLE avro (
  fingerprint bytea PRIMARY KEY CHECK (octet_length(fingerprint) = 8),
  schema      json NOT NULL
);

CREATE TABLE tool (
  name                text PRIMARY KEY REFERENCES topic CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$'),
  title               text NOT NULL,
  effect              text NOT NULL CHECK (effect IN ('provider_key', 'probe', 'provider_key+probe', 'repeatable', 'unrepeatable')),
  key_window          interval CHECK ((effect LIKE 'provider_key%') = (key_window IS NOT NULL)),
  key_margin          interval CHECK ((key_margin IS NULL) = (key_window IS NULL)),
  settle_after        interval CHECK ((effect LIKE '%probe') = (settle_after IS NOT NULL)),  -- how long after its deadline an attempt may still arrive
  deadline            interval NOT NULL CHECK (deadline > interval '0'),  -- of one attempt
  attempts            int NOT NULL CHECK (attempts > 0),                  -- that send
  give_up_after       interval NOT NULL CHECK (give_up_after > interval '0'),  -- from the first send: it is not tried again after that
  expires             interval CHECK (expires > interval '0'),            -- from the decision: it is not begun after that
  order_by            text,
  order_stops         boolean NOT NULL DEFAULT false,  -- a call that gave up or was refused stops those behind it
  args_fingerprints   bytea[] NOT NULL,  -- every writer there ever was; the last is today's
  result_fingerprints bytea[] NOT NULL,
  paused              boolean NOT NULL DEFAULT false,
  -- Times beyond it would leave the calendar in sums, and one such tool would stop the sweep of all.
  CONSTRAINT times_within_reason CHECK (greatest(key_window, key_margin, settle_after, deadline, give_up_after, expires) <= interval '3650 days')
);

CREATE TABLE run (
  id         text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._~-]{1,128}$'),
  status     text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'closed', 'restored')),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE step (
  run_id     text COLLATE "C" NOT NULL REFERENCES run,
  n          int NOT NULL CHECK (n >= 0),
  kind       text NOT NULL CHECK (kind IN ('input', 'decision', 'abort', 'cancel')),
  reply      json,           -- the model's, verbatim
  messages   json,           -- what an input adds
  shown      json,           -- the answers that the model saw before it replied
  calls      json,           -- what the reply asked for, by position; those that were invalid say why
  note       json,           -- why a run was cancelled or aborted; which calls the model saw unsettled, and which late truths
  width      int NOT NULL,   -- positions in the reply
  open_from  int NOT NULL,   -- no call of an earlier step was open when this one was committed
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (run_id, n)
);

-- INSERT ONLY. The key is C-collated, so that the calls of a run are one range of its index.
CREATE TABLE action (
  id      uuid PRIMARY KEY,
  key     text COLLATE "C" NOT NULL UNIQUE,
  run_id  text COLLATE "C" NOT NULL,
  step    int NOT NULL,
  call    int NOT NULL,
  tool    text NOT NULL REFERENCES tool,
  kind    text NOT NULL DEFAULT 'call' CHECK (kind IN ('call', 'undo')),
  args    jsonb NOT NULL,
  digest  bytea NOT NULL CHECK (octet_length(digest) = 32),
  after   uuid,              -- the previous action of the same order key, when it was decided
  payload bytea,             -- only of a call that was not emitted with its step
  FOREIGN KEY (run_id, step) REFERENCES step
);

-- Updated twice in a call's life, in place (HOT): no index may mention status or owner, and the fast path never
-- touches next_at or after. A quarter of each page is filled: a batch of claims writes second versions of all its rows before
-- the first ones can go, and the third is larger. Half was too much (80 % in place in batches of 100, now all).
CREATE TABLE outcome (
  action_id     uuid PRIMARY KEY REFERENCES action,
  tool          text NOT NULL,
  status        text NOT NULL DEFAULT 'pending' CHECK (status IN
                  ('held', 'pending', 'running', 'retry', 'in_doubt', 'done', 'refused', 'gave_up', 'rejected', 'cancelled')),
  attempt       int NOT NULL DEFAULT 0,          -- claims
  performed     int NOT NULL DEFAULT 0,          -- the last of them that ended and may have sent
  spent         int NOT NULL DEFAULT 0,          -- of these, what does not count as a send: probes, those given back, those before a redrive
  probes        smallint NOT NULL DEFAULT 0,     -- of these, the probes since the last send
  rekeyed       smallint NOT NULL DEFAULT 0,     -- how often it was given a new idempotency key
  unsettled     boolean NOT NULL DEFAULT false,  -- an earlier attempt may have taken effect and nobody knows yet
  probe         boolean NOT NULL DEFAULT false,  -- the next attempt asks whether it happened
  passed        boolean,                         -- a person let those behind it go on
  let_go        boolean,                         -- pending, and no worker and no topic has a record of it
  waits         int NOT NULL DEFAULT 0,
  after         uuid,
  owner         uuid,
  claimed_at    timestamptz,
  first_sent_at timestamptz,                     -- under the present key
  until         timestamptz,                     -- the deadline of the last attempt that performs or performed
  since         timestamptz,                     -- the age counts from here after a redrive
  next_at       timestamptz,
  finished_at   timestamptz,
  result        json,
  error         json,
  CONSTRAINT unsettled_stays_open CHECK (NOT unsettled OR status IN ('pending', 'running', 'retry', 'in_doubt'))  -- I16
) WITH (fillfactor = 25);
CREATE INDEX outcome_after ON outcome (after) WHERE after IS NOT NULL;
CREATE INDEX outcome_next ON outcome (tool, next_at) WHERE next_at IS NOT NULL;

-- INSERT ONLY, and never by COPY: Debezium 3.6 can lose rows that share a WAL position. The first emission of a call
-- has the call's own id and is kept until the call is final and settled: later emissions copy its bytes.
CREATE TABLE outbox (
  id            uuid PRIMARY KEY DEFAULT uuidv7(),
  aggregatetype text NOT NULL REFERENCES topic,
  aggregateid   text NOT NULL CHECK (aggregateid <> ''),
  type          text NOT NULL CHECK (type IN ('call', 'undo', 'probe', 'step', 'result', 'dead', 'schema', 'heartbeat')),
  action_id     uuid,
  key           text,
  attempt       int NOT NULL DEFAULT 0,
  traceparent   text,
  payload       bytea NOT NULL CHECK (octet_length(payload) BETWEEN 1 AND 900000),
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row per living worker process, renewed in place of one lease per call.
CREATE TABLE worker (
  owner            uuid PRIMARY KEY,
  tools            text[] NOT NULL,
  source           text NOT NULL CHECK (source IN ('kafka', 'poll')),
  lease            interval NOT NULL CHECK (lease > interval '0'),
  renewed_at       timestamptz NOT NULL,
  lease_until      timestamptz NOT NULL,
  received_through jsonb NOT NULL DEFAULT '{}'  -- per tool: all that was emitted before this moment has reached the worker
);

-- The last action of each order key, handed from commit to commit.
CREATE TABLE tail (
  tool      text NOT NULL,
  order_key text NOT NULL,
  last      uuid NOT NULL,
  prev      uuid,
  PRIMARY KEY (tool, order_key)
) WITH (fillfactor = 70);

-- What a worker knew too late to record: always kept (I8).
CREATE TABLE late (
  id        uuid PRIMARY KEY DEFAULT uuidv7(),
  action_id uuid NOT NULL,
  attempt   int NOT NULL,
  owner     uuid NOT NULL,
  status    text NOT NULL,
  result    json,
  error     json,
  settled   boolean NOT NULL,  -- it settled an outcome that was in doubt
  alarm     boolean NOT NULL,  -- an effect that came after its call, or its attempt, had been closed without one
  at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT fits_an_event CHECK (coalesce(octet_length(result::text), 0) + coalesce(octet_length(error::text), 0) < 890000)
);
CREATE INDEX late_action ON late (action_id);

-- Dead letters: calls that gave up, until a person has dealt with each.
CREATE TABLE dead (
  id        uuid PRIMARY KEY DEFAULT uuidv7(),
  action_id uuid NOT NULL,
  key       text COLLATE "C" NOT NULL,
  tool      text NOT NULL,
  attempt   int NOT NULL,
  reason    text NOT NULL,
  happened  boolean NOT NULL,  -- its effect is known to be there: only the result could not be kept
  at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at timestamptz,
  closed_as text CHECK (closed_as IN ('redriven', 'dropped', 'resolved')),
  closed_by text
);
CREATE UNIQUE INDEX dead_open ON dead (action_id) WHERE closed_at IS NULL;

-- Who changed what by hand (I10).
CREATE TABLE audit (
  id        uuid PRIMARY KEY DEFAULT uuidv7(),
  at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  who       text NOT NULL CHECK (who <> ''),       -- as they said; deedbox: the ledger itself
  role      text NOT NULL DEFAULT session_user,    -- as Postgres knows them
  verb      text NOT NULL,
  tool      text NOT NULL,
  action_id uuid,
  key       text COLLATE "C",
  note      text,
  was       json,  -- the outcome before
  became    json
);
CREATE INDEX audit_action ON audit (action_id) WHERE action_id IS NOT NULL;

-- Records that could not be taken as calls, with their bytes and where they stood.
CREATE TABLE stray (
  id           uuid PRIMARY KEY DEFAULT uuidv7(),
  topic        text NOT NULL,
  partition    int NOT NULL,
  offset_      bigint NOT NULL,
  record_key   bytea,
  headers      jsonb NOT NULL,
  payload      bytea,
  reason       text NOT NULL,
  at           timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- A record that comes twice is kept once; a topic made anew has other bytes at the same offset.
CREATE UNIQUE INDEX stray_record ON stray (topic, partition, offset_, md5(coalesce(payload, '')));

-- For people: what the agents did.
CREATE VIEW agent_actions AS
SELECT a.key, a.tool, a.args, o.status, o.result, uuid_time(a.id) AS created_at
FROM action a JOIN outcome o ON o.action_id = a.id;

-- What a new snapshot of the connector has to emit when its slot was lost: the calls that nobody answered, and every
-- step, result and schema that is still kept. It has its owner's rights, so that the connector's role can read it without the ledger.
CREATE VIEW unpublished AS
SELECT b.* FROM outbox b
WHERE b.type IN ('step', 'result', 'dead', 'schema')
   OR EXISTS (SELECT FROM outcome o WHERE o.action_id = b.action_id AND o.status = 'pending');

DO $$
DECLARE
  publication text := (SELECT prefix || '_outbox' FROM box);
BEGIN
  -- One that lost its table with an earlier ledger of this name is in the way and publishes nothing.
  IF EXISTS (SELECT FROM pg_publication WHERE pubname = publication AND NOT puballtables)
     AND NOT EXISTS (SELECT FROM pg_publication_tables WHERE pubname = publication) THEN
    EXECUTE format('DROP PUBLICATION %I', publication);
  END IF;
  -- Before any slot, or the slot's catalog does not know it. Insert only: pruning never reaches the stream.
  EXECUTE format('CREATE PUBLICATION %I FOR TABLE outbox WITH (publish = ''insert'', publish_via_partition_root = true)', publication);
END $$;

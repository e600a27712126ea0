-- name: lock
-- One registers at a time.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))

-- name: tools
-- What is registered, with every writer schema of each tool, oldest first.
SELECT t.name, t.title, t.effect, t.paused,
       (SELECT array_agg(a.schema::text ORDER BY f.i) FROM unnest(t.args_fingerprints) WITH ORDINALITY f(fp, i) JOIN {schema}.avro a ON a.fingerprint = f.fp),
       (SELECT array_agg(a.schema::text ORDER BY f.i) FROM unnest(t.result_fingerprints) WITH ORDINALITY f(fp, i) JOIN {schema}.avro a ON a.fingerprint = f.fp),
       t.args_fingerprints, t.result_fingerprints,
       -- What may change without a word to anybody, to be compared with what is applied.
       jsonb_build_object('title', t.title, 'effect', t.effect, 'window', extract(epoch FROM t.key_window), 'margin', extract(epoch FROM t.key_margin),
         'settle_after', extract(epoch FROM t.settle_after), 'deadline', extract(epoch FROM t.deadline), 'attempts', t.attempts,
         'give_up_after', extract(epoch FROM t.give_up_after), 'expires', extract(epoch FROM t.expires), 'order_by', t.order_by, 'order_stops', t.order_stops)
FROM {schema}.tool t ORDER BY t.name

-- name: put_topic
INSERT INTO {schema}.topic (name) VALUES (%s) ON CONFLICT DO NOTHING

-- name: put_schema
INSERT INTO {schema}.avro (fingerprint, schema) VALUES (%s, %s) ON CONFLICT DO NOTHING

-- name: put_tool
-- The current fingerprint stands last; earlier writers stay.
INSERT INTO {schema}.tool AS t (name, title, effect, key_window, key_margin, settle_after, deadline, attempts, give_up_after, expires,
                                 order_by, order_stops, args_fingerprints, result_fingerprints)
VALUES (%(name)s, %(title)s, %(effect)s, %(window)s, %(margin)s, %(settle_after)s, %(deadline)s, %(attempts)s, %(give_up_after)s, %(expires)s,
        %(order_by)s, %(order_stops)s, ARRAY[%(args)s::bytea], ARRAY[%(result)s::bytea])
ON CONFLICT (name) DO UPDATE SET
  title = excluded.title, effect = excluded.effect, key_window = excluded.key_window, key_margin = excluded.key_margin,
  settle_after = excluded.settle_after, deadline = excluded.deadline, attempts = excluded.attempts,
  give_up_after = excluded.give_up_after, expires = excluded.expires, order_by = excluded.order_by, order_stops = excluded.order_stops,
  args_fingerprints = array_remove(t.args_fingerprints, %(args)s) || excluded.args_fingerprints,
  result_fingerprints = array_remove(t.result_fingerprints, %(result)s) || excluded.result_fingerprints

-- name: current
-- Every fingerprint that was ever applied, for the check at the start of an agent or a worker: during a deploy, one
-- that is a release behind may start again.
SELECT name, args_fingerprints, result_fingerprints FROM {schema}.tool

-- name: writer
-- A writer schema by its fingerprint.
SELECT schema::text FROM {schema}.avro WHERE fingerprint = %s

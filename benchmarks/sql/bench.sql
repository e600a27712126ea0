-- What the benchmark asks the server. Nothing here is part of the product.

-- name: extensions
CREATE EXTENSION IF NOT EXISTS pg_walinspect

-- name: topics
SELECT name, partitions FROM {schema}.topic

-- name: step_events
UPDATE {schema}.box SET step_events = %s

-- name: analyze
ANALYZE

-- name: ping
SELECT 1

-- name: session
-- The watching session goes by the primary key, whatever the statistics say.
SELECT set_config('enable_seqscan', 'off', false)

-- name: now
SELECT {schema}.uuid_floor(clock_timestamp())

-- name: open
-- The oldest call from an id on that has no final outcome: asked again from its answer on, it costs one pass in all.
SELECT action_id FROM {schema}.outcome
WHERE action_id >= %s AND status IN ('held', 'pending', 'running', 'retry', 'in_doubt') ORDER BY action_id LIMIT 1

-- name: done
SELECT count(*), count(*) FILTER (WHERE status = 'done') FROM {schema}.outcome WHERE action_id >= %s

-- name: commits
-- Of all sessions of this database, reads included.
SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()

-- name: updates
SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = '{schema}.outcome'::regclass

-- name: position
SELECT pg_current_wal_flush_lsn()::text

-- name: wal
-- All bytes between two positions, page headers included, and those of full-page images among them.
SELECT pg_wal_lsn_diff(%(to)s::pg_lsn, %(from)s::pg_lsn)::bigint,
       (SELECT coalesce(sum(fpi_size), 0)::bigint FROM pg_get_wal_stats(%(from)s::pg_lsn, %(to)s::pg_lsn))

-- name: hops
-- The moments of a call's life by the server's clock, as seconds since 1970.
SELECT o.action_id::text, extract(epoch FROM b.created_at)::float8, extract(epoch FROM o.claimed_at)::float8,
       (o.result ->> 'at')::float8 / 1e9, extract(epoch FROM o.finished_at)::float8
FROM {schema}.outcome o JOIN {schema}.outbox b ON b.id = o.action_id WHERE o.action_id >= %s

-- name: asked_at
-- When each session of the claim path was last given a statement.
SELECT pid, application_name, query_start FROM pg_stat_activity
WHERE datname = current_database() AND application_name IN ('deedbox-worker claim', 'deedbox-worker finish')

-- name: vacuum
-- As autovacuum does each minute.
VACUUM (ANALYZE)

-- name: no_autovacuum
ALTER SYSTEM SET autovacuum = off

-- name: autovacuum
ALTER SYSTEM RESET autovacuum

-- name: reload
SELECT pg_reload_conf()

-- name: sessions
-- Sessions of the parts that are open now (those of Debezium and our own left out), and all that were ever begun.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
          AND NOT starts_with(application_name, 'Debezium') AND application_name <> 'deedbox-bench'),
       (SELECT sessions FROM pg_stat_database WHERE datname = current_database())

-- name: fates
-- What became of each call from an id on; moments by the server's clock, as seconds since 1970.
SELECT o.action_id, a.key, o.tool, o.status, o.attempt, extract(epoch FROM o.claimed_at)::float8, extract(epoch FROM o.finished_at)::float8
FROM {schema}.outcome o JOIN {schema}.action a ON a.id = o.action_id WHERE o.action_id >= %s

-- name: workers
SELECT count(*) FROM {schema}.worker

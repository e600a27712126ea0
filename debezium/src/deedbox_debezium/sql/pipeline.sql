-- What the pipeline's commands ask of the ledger's database.

-- name: ledger_exists
SELECT to_regclass(%(table)s) IS NOT NULL

-- name: ready
-- What a connector needs and cannot make for itself; the publication and the role are named after the box's prefix.
SELECT b.prefix,
       current_database(),
       current_setting('wal_level'),
       EXISTS (SELECT FROM pg_publication WHERE pubname = b.prefix || '_outbox'),
       coalesce((SELECT r.rolcanlogin AND r.rolreplication
                        AND has_table_privilege(r.oid, '{schema}.outbox'::regclass, 'SELECT')
                        AND has_table_privilege(r.oid, '{schema}.unpublished'::regclass, 'SELECT')
                 FROM pg_roles r WHERE r.rolname = b.prefix || '_connect'), false)
FROM {schema}.box b

-- name: slot
-- Whether Debezium reads, how much WAL its slot holds back and how far it is behind, in bytes.
SELECT active, wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = %(slot)s AND database = current_database()

-- name: drop_slot
-- A slot without a connector holds back WAL; the outbox rows themselves stay. The connector that has just been stopped
-- may hold it for a moment: then nothing is dropped, and the caller asks again.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_name = %(slot)s AND database = current_database() AND NOT active

-- name: topics
SELECT name, partitions FROM {schema}.topic ORDER BY name

-- name: lock
-- One migrates at a time; the others wait and find nothing to do.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))

-- name: prepare
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migration (
  number     int PRIMARY KEY,
  name       text NOT NULL,
  checksum   text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: enter
-- Everything in a migration lands in this schema, and its functions keep this path.
SELECT set_config('search_path', %(path)s, true), set_config('deedbox.prefix', %(prefix)s, true),
       set_config('deedbox.connect_password', %(connect_password)s, true)

-- name: applied
SELECT number, checksum FROM {schema}.migration

-- name: record
INSERT INTO {schema}.migration (number, name, checksum) VALUES (%(number)s, %(name)s, %(checksum)s)

-- name: exists
-- Asked without an error, so that a transaction around it lives on.
SELECT to_regclass(%s) IS NOT NULL

-- name: newest
SELECT max(number) FROM {schema}.migration

-- name: begin
-- The script for a DBA is one transaction too.
BEGIN

-- name: commit
COMMIT

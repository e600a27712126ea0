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

-- name: applied
SELECT number, checksum FROM {schema}.migration

-- name: record
INSERT INTO {schema}.migration (number, name, checksum) VALUES (%s, %s, %s)

-- name: exists
-- Asked without an error, so that a transaction around it lives on.
SELECT to_regclass(%s) IS NOT NULL

-- name: newest
SELECT max(number) FROM {schema}.migration

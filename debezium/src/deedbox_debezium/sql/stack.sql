-- What the local stack itself asks of its Postgres.

-- name: answers
-- The health gate: the server takes a connection and runs a statement.
SELECT 1

-- name: database_exists
-- CREATE DATABASE has no IF NOT EXISTS.
SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'deedbox')

-- name: create_database
CREATE DATABASE deedbox

-- What the local stack itself asks of its Postgres.

-- name: answers
-- The health gate: the server takes a connection and runs a statement.
SELECT 1

-- name: database_exists
-- CREATE DATABASE has no IF NOT EXISTS.
SELECT EXISTS (SELECT FROM pg_database WHERE datname = %(name)s)

-- name: create_database
CREATE DATABASE {name}

-- name: role_exists
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %(name)s)

-- name: create_connect_role
-- The role Debezium logs in with; `deedbox init --roles` grants it what it may read.
CREATE ROLE {name} LOGIN REPLICATION PASSWORD {password}

-- name: set_connect_password
-- Each start: the password in the stack's folder is the one that counts.
ALTER ROLE {name} LOGIN REPLICATION PASSWORD {password}

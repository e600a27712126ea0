-- name: session
-- A process that is stopped inside a transaction must not hold its locks: the server ends it.
SELECT set_config('idle_in_transaction_session_timeout', '5s', false), set_config('lock_timeout', %s, false)

-- name: box
SELECT id, prefix FROM {schema}.box

-- name: enlist
SELECT {schema}.enlist(%s, %s::text[], %s, %s)

-- name: renew
SELECT {schema}.renew(%s, %s::jsonb, %s)

-- name: resign
SELECT {schema}.resign(%s)

-- name: claim
-- Lists travel in binary form, which spares quoting each item.
SELECT id, verdict, key, attempt, digest, window_left, probe, rekeyed, deadline FROM {schema}.claim(%b::uuid[], %s)

-- name: finish
SELECT id, verdict, status FROM {schema}.finish(%s, %b::uuid[], %b::int[], %b::text[], %b::text[]::json[], %b::text[]::json[], %b::boolean[], %s::interval[])

-- name: sweep
SELECT duty, tool, id, status FROM {schema}.sweep(%s)

-- name: pending
-- From an id on, or (null) everything that is open, which takes longer.
SELECT pending FROM {schema}.pending(%s::text[], %s::uuid, %s)

-- name: records
SELECT action_id, tool, type, key, order_key, payload, attempt FROM {schema}.records(%s::uuid[])

-- name: attempts
-- The newest attempt of each call.
SELECT action_id, attempt - 1 FROM {schema}.records(%b::uuid[])

-- name: paused
SELECT name FROM {schema}.tool WHERE paused AND name = ANY (%s::text[])

-- name: let_go
SELECT {schema}.let_go(%s::uuid[])

-- name: set_aside
SELECT {schema}.set_aside(%s, %s, %s, %s, %s::jsonb, %s, %s)

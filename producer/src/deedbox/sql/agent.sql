-- name: commit_step
-- Texts out, so that a connection's own loaders and row factories do not matter; lists in binary form, which
-- spares quoting each item.
SELECT verdict, detail, ids::text[],
  CASE verdict WHEN 'taken' THEN
    (SELECT coalesce(json_agg(json_build_array(c.position, c.tool, c.args, encode(c.digest, 'hex'))), '[]')::text
     FROM unnest(stored_positions, stored_tools, stored_args, stored_digests) AS c(position, tool, args, digest)) END
FROM {schema}.commit_step(
  %(run)s, %(n)s, %(kind)s, %(reply)s::json, %(messages)s::json, %(shown)s::json, %(calls)s::json, %(note)s::json, %(width)s,
  %(positions)b::int[], %(tools)b::text[], %(args)b::text[]::jsonb[], %(digests)b::bytea[], %(payloads)b::bytea[], %(order_keys)b::text[],
  %(while_open)s, %(again)s, %(traceparent)s)

-- name: steps
-- The journal from a step on.
SELECT n, kind, reply::text, messages::text, shown::text, calls::text, note::text, created_at::text
FROM {schema}.step WHERE run_id = %(run)s AND n >= %(n)s ORDER BY n

-- name: calls
-- The calls of a run from a step on: one range of the key's index, which is C-collated (';' follows ':').
SELECT a.id::text, a.key, a.step, a.call, a.tool, a.args::text, o.status, o.attempt, o.unsettled, o.result::text, o.error::text
FROM {schema}.action a JOIN {schema}.outcome o ON o.action_id = a.id
WHERE a.key >= %(run)s || ':' AND a.key < %(run)s || ';' AND a.step >= %(n)s ORDER BY a.step, a.call

-- name: outcomes
-- Of open calls; with each the number of the run's last step, since one from outside may have come meanwhile.
SELECT action_id::text, status, attempt, unsettled, result::text, error::text,
  (SELECT max(n) FROM {schema}.step WHERE run_id = %(run)s)
FROM {schema}.outcome WHERE action_id = ANY (%(ids)s::uuid[])

-- name: run
SELECT r.status, r.created_at::text, (SELECT s.messages::text FROM {schema}.step s WHERE s.run_id = r.id AND s.n = 0)
FROM {schema}.run r WHERE r.id = %(run)s

-- name: box
SELECT id, prefix FROM {schema}.box

-- name: listen
-- One notice per batch of outcomes, naming the runs while that is short. The channel is the schema's name.
LISTEN {schema}

-- name: box
SELECT id FROM {schema}.box

-- name: topics
SELECT name, partitions FROM {schema}.topic

-- name: calls
-- Where the calls of these runs stand, with the moments that are known only here. An action's later emissions follow
-- its id in the outbox's primary key.
SELECT a.id::text, a.key, a.run_id, o.status, o.attempt,
       extract(epoch FROM s.created_at)::float8, extract(epoch FROM o.claimed_at)::float8,
       extract(epoch FROM o.finished_at)::float8,
       (SELECT extract(epoch FROM max(b.created_at))::float8 FROM {schema}.outbox b
        WHERE b.id > a.id AND b.action_id = a.id AND b.type = 'call')
FROM {schema}.action a
JOIN {schema}.outcome o ON o.action_id = a.id
JOIN {schema}.step s ON s.run_id = a.run_id AND s.n = a.step
WHERE a.run_id = ANY (%(runs)s) ORDER BY a.id

-- name: finished
-- Runs whose last step asks for nothing.
SELECT count(*) FROM {schema}.step s
WHERE s.run_id = ANY (%(runs)s) AND s.kind = 'decision' AND s.width = 0

-- name: open_calls
-- Calls that an earlier demo left behind.
SELECT count(*) FROM {schema}.outcome WHERE status IN ('held', 'pending', 'running', 'retry')

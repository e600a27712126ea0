-- name: session
-- Times as everybody reads them, whatever the role or the database is set to.
SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, MDY', false)

-- name: runs
-- The newest runs. One whose last step asks for nothing, and of which nothing is open, is finished.
SELECT r.id, CASE WHEN s.kind = 'abort' THEN 'aborted'
                  WHEN r.status = 'running' AND s.kind = 'decision' AND s.width = 0 AND o.calls = 0 THEN 'finished' ELSE r.status END,
       r.created_at, s.n, s.kind, o.calls
FROM {schema}.run r
LEFT JOIN LATERAL (SELECT n, kind, width FROM {schema}.step WHERE run_id = r.id ORDER BY n DESC LIMIT 1) s ON true
CROSS JOIN LATERAL (
  SELECT count(*) AS calls FROM {schema}.action a JOIN {schema}.outcome x ON x.action_id = a.id
  WHERE a.key >= r.id || ':' AND a.key < r.id || ';' AND x.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')) o
ORDER BY r.created_at DESC LIMIT %(limit)s

-- name: call
-- All there is to know about one call.
SELECT a.id::text AS id, a.key, a.tool, a.args, a.kind, o.status, o.attempt, o.attempt - o.spent AS sends, o.unsettled, o.probe, o.rekeyed,
       o.owner::text AS owner, o.result, o.error, {schema}.uuid_time(a.id) AS decided_at, o.claimed_at, o.first_sent_at,
       CASE WHEN o.status IN ('held', 'pending', 'running', 'retry', 'in_doubt') THEN nullif(o.next_at, 'infinity') END AS next_at, o.finished_at,
       (SELECT id FROM {schema}.box) AS box, t.paused, t.attempts AS most_sends
FROM {schema}.action a JOIN {schema}.outcome o ON o.action_id = a.id JOIN {schema}.tool t ON t.name = a.tool WHERE a.key = %(key)s

-- name: late_of
-- What workers knew too late to record of a call.
SELECT l.attempt, l.status, l.result, l.error, l.settled, l.alarm, l.at FROM {schema}.late l WHERE l.action_id = %(id)s ORDER BY l.id

-- name: audit_of
-- What persons did to a call.
SELECT u.at, u.who, u.verb, u.note, u.was ->> 'status' AS was, u.became ->> 'status' AS became
FROM {schema}.audit u WHERE u.action_id = %(id)s ORDER BY u.id

-- name: letters_of
-- The dead letters of a call.
SELECT d.at, d.attempt, d.reason, d.happened, d.closed_at, d.closed_as, d.closed_by
FROM {schema}.dead d WHERE d.action_id = %(id)s ORDER BY d.id

-- name: open_calls
-- What is open, newest first, without a look at what is over: an open call has a time at which it is looked at, or its id
-- is above the watermark. Why: what is said of it, or what it waits for.
SELECT a.key, a.tool, o.status, o.attempt, {schema}.uuid_time(a.id) AS decided_at, nullif(o.next_at, 'infinity') AS next_at, o.error,
       t.paused, (SELECT b.key FROM {schema}.outcome e JOIN {schema}.action b ON b.id = e.action_id
                  WHERE e.action_id = o.after AND (e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')
                    OR t.order_stops AND e.status IN ('refused', 'gave_up') AND e.passed IS NULL)) AS behind
FROM (SELECT x.action_id FROM (
        SELECT action_id, tool, status FROM {schema}.outcome WHERE next_at IS NOT NULL
        UNION SELECT action_id, tool, status FROM {schema}.outcome WHERE action_id >= (SELECT watermark FROM {schema}.box)) x
      WHERE x.status = ANY (%(statuses)s) AND (%(tool)s::text IS NULL OR x.tool = %(tool)s)
      ORDER BY x.action_id DESC LIMIT %(limit)s) newest
JOIN {schema}.outcome o ON o.action_id = newest.action_id JOIN {schema}.action a ON a.id = o.action_id JOIN {schema}.tool t ON t.name = o.tool
ORDER BY a.id DESC

-- name: calls_of_run
-- The calls of one run, newest first: a range of the key's index.
SELECT a.key, a.tool, o.status, o.attempt, {schema}.uuid_time(a.id) AS decided_at, nullif(o.next_at, 'infinity') AS next_at, o.error,
       t.paused, (SELECT b.key FROM {schema}.outcome e JOIN {schema}.action b ON b.id = e.action_id
                  WHERE e.action_id = o.after AND (e.status IN ('held', 'pending', 'running', 'retry', 'in_doubt')
                    OR t.order_stops AND e.status IN ('refused', 'gave_up') AND e.passed IS NULL)) AS behind
FROM {schema}.action a JOIN {schema}.outcome o ON o.action_id = a.id JOIN {schema}.tool t ON t.name = o.tool
WHERE a.key >= %(run)s || ':' AND a.key < %(run)s || ';'
  AND o.status = ANY (%(statuses)s) AND (%(tool)s::text IS NULL OR o.tool = %(tool)s)
ORDER BY a.id DESC LIMIT %(limit)s

-- name: newest_calls
-- Calls of any status, newest first: along the primary key, until enough are found.
SELECT a.key, a.tool, o.status, o.attempt, {schema}.uuid_time(a.id) AS decided_at, nullif(o.next_at, 'infinity') AS next_at, o.error,
       t.paused, NULL::text AS behind
FROM {schema}.outcome o JOIN {schema}.action a ON a.id = o.action_id JOIN {schema}.tool t ON t.name = o.tool
WHERE o.status = ANY (%(statuses)s) AND (%(tool)s::text IS NULL OR o.tool = %(tool)s)
ORDER BY o.action_id DESC LIMIT %(limit)s

-- name: late
-- What workers knew too late to record. First the effects that came after their call was closed without one, and is
-- still; then the newest.
SELECT a.key, l.tool, l.attempt, l.status AS said, l.alarm, l.settled, l.at, l.result, l.error, l.now
FROM (SELECT e.*, o.tool, o.status AS now FROM {schema}.late e JOIN {schema}.outcome o ON o.action_id = e.action_id
      WHERE %(tool)s::text IS NULL OR o.tool = %(tool)s) l
JOIN {schema}.action a ON a.id = l.action_id
WHERE %(run)s::text IS NULL OR a.key >= %(run)s || ':' AND a.key < %(run)s || ';'
ORDER BY l.alarm AND l.now <> 'done' DESC, l.alarm DESC, l.id DESC LIMIT %(limit)s

-- name: resolve
SELECT {schema}.resolve(%(key)s, %(happened)s::json, %(who)s, %(note)s)

-- name: standing
-- Where a call stands.
SELECT o.status, a.id, o.result, o.rekeyed, coalesce((o.error ->> 'happened')::boolean, false)
         OR EXISTS (SELECT FROM {schema}.dead d WHERE d.action_id = a.id AND d.happened), (SELECT id FROM {schema}.box)
FROM {schema}.action a JOIN {schema}.outcome o ON o.action_id = a.id WHERE a.key = %(key)s

-- name: result_schema
-- The schema that results of the call's tool are written with today.
SELECT a.tool, (SELECT x.schema::text FROM {schema}.avro x WHERE x.fingerprint = t.result_fingerprints[cardinality(t.result_fingerprints)])
FROM {schema}.action a JOIN {schema}.tool t ON t.name = a.tool WHERE a.key = %(key)s

-- name: letters
-- The open dead letters that are meant, newest first. A run's calls are a range of keys.
SELECT d.action_id AS id, d.key, d.tool, d.reason, d.at, d.attempt, d.happened
FROM {schema}.dead d
WHERE d.closed_at IS NULL
  AND (%(tool)s::text IS NULL OR d.tool = %(tool)s)
  AND (%(run)s::text IS NULL OR d.key >= %(run)s || ':' AND d.key < %(run)s || ';')
  AND (%(since)s::timestamptz IS NULL OR d.at >= %(since)s)
  AND (%(before)s::timestamptz IS NULL OR d.at < %(before)s)
  AND (%(reason)s::text IS NULL OR strpos(d.reason, %(reason)s) > 0)
ORDER BY d.id DESC LIMIT %(limit)s

-- name: chosen
-- Calls by their keys, with what is said of each; a letter only while it is open.
SELECT a.id, a.key, a.tool, coalesce(d.reason, o.error ->> 'reason', o.status) AS reason, d.at, o.attempt, coalesce(d.happened, false) AS happened
FROM {schema}.action a JOIN {schema}.outcome o ON o.action_id = a.id LEFT JOIN {schema}.dead d ON d.action_id = a.id AND d.closed_at IS NULL
WHERE a.key = ANY (%(keys)s) ORDER BY a.id

-- name: redrivable
SELECT id, verdict FROM {schema}.redrivable(%(ids)s, %(rekey)s)

-- name: redrive
SELECT id, verdict FROM {schema}.redrive(%(ids)s, %(rekey)s, %(who)s, %(note)s)

-- name: droppable
SELECT id, verdict FROM {schema}.droppable(%(ids)s)

-- name: drop
SELECT id, verdict FROM {schema}.drop_dead(%(ids)s, %(who)s, %(note)s)

-- name: pause
SELECT {schema}.pause(%(tool)s, %(paused)s, %(who)s, %(note)s)

-- name: tools
SELECT t.name AS tool, t.title, t.effect, t.paused, t.deadline, t.attempts, t.key_window AS window, t.key_margin AS margin, t.settle_after,
       t.give_up_after, t.expires, t.order_by, t.order_stops, p.at AS paused_at, p.who AS paused_by, p.note AS paused_note
FROM {schema}.tool t LEFT JOIN LATERAL (
  SELECT a.at, a.who, a.note FROM {schema}.audit a WHERE a.tool = t.name AND a.verb = 'pause' ORDER BY a.id DESC LIMIT 1) p ON t.paused
ORDER BY t.name

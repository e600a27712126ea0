-- name: create_schema
-- The caller's own tables, beside the ledger's: orders, and what the naive agent saves of its conversations.
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: create_orders
CREATE TABLE IF NOT EXISTS {schema}.orders (
  n        int GENERATED ALWAYS AS IDENTITY (START 8812) PRIMARY KEY,
  id       text GENERATED ALWAYS AS ('order-' || n::text) STORED UNIQUE,
  customer text NOT NULL,
  cents    int NOT NULL,
  status   text NOT NULL DEFAULT 'new',
  steps    int NOT NULL DEFAULT 0  -- counted up by each step: done twice, it would show
)

-- name: create_saved
CREATE TABLE IF NOT EXISTS {schema}.saved (
  order_id text NOT NULL,
  n        int NOT NULL,
  message  json NOT NULL,
  PRIMARY KEY (order_id, n)
)

-- name: open_order
INSERT INTO {schema}.orders (customer, cents) VALUES (%(customer)s, %(cents)s) RETURNING id

-- name: order
SELECT id, customer, cents, status, steps FROM {schema}.orders WHERE id = %(id)s

-- name: mark
UPDATE {schema}.orders SET status = %(status)s, steps = steps + 1 WHERE id = %(id)s

-- name: saved
SELECT message::text FROM {schema}.saved WHERE order_id = %(id)s ORDER BY n

-- name: save
INSERT INTO {schema}.saved (order_id, n, message) VALUES (%(id)s, %(n)s, %(message)s::json) ON CONFLICT DO NOTHING

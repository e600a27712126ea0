-- name: create
-- What the provider remembers (charges, answers by key), and what was asked of it and of the model.
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS {schema}.charge (
  id TEXT PRIMARY KEY, "order" TEXT NOT NULL, customer TEXT NOT NULL, cents INTEGER NOT NULL, key TEXT, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.answer (
  key TEXT PRIMARY KEY, body TEXT NOT NULL, status INTEGER NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.request (
  n INTEGER PRIMARY KEY, "order" TEXT, key TEXT, status INTEGER NOT NULL, stored INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.asked (
  n INTEGER PRIMARY KEY, "order" TEXT NOT NULL, step INTEGER NOT NULL, at REAL NOT NULL);

-- name: begin
-- One writer at a time from here on: a key is looked up and used in one step.
BEGIN IMMEDIATE

-- name: answer
SELECT body, status, text FROM {schema}.answer WHERE key = :key

-- name: put_answer
INSERT INTO {schema}.answer (key, body, status, text) VALUES (:key, :body, :status, :text)

-- name: put_charge
INSERT INTO {schema}.charge (id, "order", customer, cents, key, at) VALUES (:id, :order, :customer, :cents, :key, :at)

-- name: put_request
INSERT INTO {schema}.request ("order", key, status, stored, at) VALUES (:order, :key, :status, :stored, :at)

-- name: put_asked
INSERT INTO {schema}.asked ("order", step, at) VALUES (:order, :step, :at)

-- name: requests
SELECT "order", key, status, stored, at FROM {schema}.request ORDER BY n

-- name: charges
SELECT "order", id, cents, key, at FROM {schema}.charge ORDER BY at

-- name: asked
SELECT "order", step, at FROM {schema}.asked ORDER BY n

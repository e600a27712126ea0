"""A ledger whose clock stands still until a test moves it: its functions read a row instead of the server's time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

# Later than any start of the server: it condemns nobody within a lease's time of it.
DAWN = datetime(2100, 1, 1, tzinfo=UTC)

# Ids follow the same clock, and one another: the sweep reads their time.
_INSTALL = """
CREATE TABLE hands_of_the_clock (at timestamptz NOT NULL);
INSERT INTO hands_of_the_clock VALUES ('2100-01-01Z');
CREATE SEQUENCE drawn_ids;
CREATE FUNCTION told_time() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT at FROM hands_of_the_clock';
CREATE FUNCTION told_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT overlay(uuid_floor(told_time())::text PLACING lpad(to_hex(nextval('drawn_ids')), 12, '0') FROM 25)::uuid
$$;
DO $$
DECLARE
  here regnamespace := current_schema()::regnamespace;
  text text;
BEGIN
  FOR text IN
    SELECT pg_get_functiondef(p.oid) FROM pg_proc p
    WHERE p.pronamespace = here AND p.proname <> 'uuidv7' AND p.prosrc ~ 'clock_timestamp\\(\\)|uuidv7\\(\\)'
    UNION ALL
    SELECT format('ALTER TABLE %s ALTER %I SET DEFAULT %s', c.oid::regclass, a.attname, pg_get_expr(d.adbin, c.oid))
    FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.adnum
    WHERE c.relnamespace = here AND pg_get_expr(d.adbin, c.oid) ~ 'clock_timestamp\\(\\)|uuidv7\\(\\)'
  LOOP
    EXECUTE replace(replace(text, 'clock_timestamp()', 'told_time()'), 'uuidv7()', 'told_id()');
  END LOOP;
END $$;
"""


class Clock:
    """The time of one ledger, on a connection that owns it."""

    def __init__(self, conn: psycopg.Connection) -> None:
        self._conn = conn
        self.now: datetime = DAWN
        conn.execute(_INSTALL)

    def set(self, now: datetime) -> None:
        """Move it."""
        self._conn.execute("UPDATE hands_of_the_clock SET at = %s", [now])
        self.now = now

    def forward(self, by: timedelta) -> None:
        """Let so much time pass."""
        self.set(self.now + by)

-- Events are Avro single objects, written by the ledger itself: it alone knows ids and times, and a caller cannot
-- forge them. The encoders follow Avro 1.12, "Binary Encoding". They run for every call: the SQL functions are single
-- expressions, and no more immutable than what they call, so that the planner puts them in line.

-- A length or count of at most 2,097,151 as a zig-zag varint.
CREATE FUNCTION avro_int(p_n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN p_n < 64 THEN substring(int4send(p_n << 1) FROM 4)
    WHEN p_n < 8192 THEN substring(int4send(((((p_n << 1) & 127) | 128) << 8) + (p_n >> 6)) FROM 3)
    ELSE substring(int4send(((((p_n << 1) & 127) | 128) << 16) + ((((p_n >> 6) & 127) | 128) << 8) + (p_n >> 13)) FROM 2)
  END
$$;

-- A moment's microseconds, twice: the zig-zag form of a positive number. Exact: a double holds them to 1/8.
CREATE FUNCTION zigzag_micros(p_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT round(date_part('epoch', p_at) * 1000000)::bigint << 1
$$;

-- Such a number as a varint: from 1979 to 3111 it has exactly eight bytes.
CREATE FUNCTION avro_micros(z bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT int8send((((z & 127) | 128) << 56) + ((((z >> 7) & 127) | 128) << 48) + ((((z >> 14) & 127) | 128) << 40)
    + ((((z >> 21) & 127) | 128) << 32) + ((((z >> 28) & 127) | 128) << 24) + ((((z >> 35) & 127) | 128) << 16)
    + ((((z >> 42) & 127) | 128) << 8) + ((z >> 49) & 127))
$$;

CREATE FUNCTION avro_text(p_text text) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT avro_int(octet_length(p_text)) || convert_to(p_text, 'UTF8')
$$;

-- A union of null and string.
CREATE FUNCTION avro_maybe(p_text text) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN p_text IS NULL THEN '\x00'::bytea ELSE '\x02'::bytea || avro_text(p_text) END
$$;

-- The events' schemas. The fingerprints are CRC-64-AVRO of the canonical form; a test computes them anew.
INSERT INTO avro (fingerprint, schema) VALUES
  ('\x0b21bfa0ba696741', '{"type":"record","name":"Result","namespace":"deedbox","fields":[{"name":"status","type":"string"},{"name":"attempt","type":"int"},{"name":"result","type":["null","string"]},{"name":"error","type":["null","string"]},{"name":"first_sent_at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},{"name":"finished_at","type":{"type":"long","logicalType":"timestamp-micros"}}]}'),
  ('\x6833a7e82d343e6a', '{"type":"record","name":"Step","namespace":"deedbox","fields":[{"name":"n","type":"int"},{"name":"kind","type":"string"},{"name":"whole","type":"boolean"},{"name":"reply","type":["null","string"]},{"name":"messages","type":["null","string"]},{"name":"shown","type":["null","string"]},{"name":"calls","type":["null","string"]},{"name":"note","type":["null","string"]},{"name":"created_at","type":{"type":"long","logicalType":"timestamp-micros"}}]}');

CREATE FUNCTION result_event(p_status text, p_attempt int, p_result text, p_error text,
                             p_first_sent_at timestamptz, p_finished_at timestamptz)
RETURNS bytea LANGUAGE plpgsql STABLE AS $$
DECLARE
  sent bigint := zigzag_micros(p_first_sent_at);
  finished bigint := zigzag_micros(p_finished_at);
BEGIN
  RETURN '\xc3010b21bfa0ba696741'::bytea || avro_text(p_status) || avro_int(p_attempt) || avro_maybe(p_result) || avro_maybe(p_error)
    || CASE WHEN sent IS NULL THEN '\x00'::bytea ELSE '\x02'::bytea || avro_micros(sent) END || avro_micros(finished);
END $$;

-- A journal entry. One that is too large for a record travels without its texts, and says so (whole = false).
CREATE FUNCTION step_event(p_step step) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
DECLARE
  created bigint := zigzag_micros(p_step.created_at);
  head bytea := '\xc3016833a7e82d343e6a'::bytea || avro_int(p_step.n) || avro_text(p_step.kind);
  texts bytea := avro_maybe(p_step.reply::text) || avro_maybe(p_step.messages::text) || avro_maybe(p_step.shown::text) || avro_maybe(p_step.calls::text) || avro_maybe(p_step.note::text);
BEGIN
  IF octet_length(texts) > 890000 THEN
    RETURN head || '\x00'::bytea || '\x0000000000'::bytea || avro_micros(created);
  END IF;
  RETURN head || '\x01'::bytea || texts || avro_micros(created);
END $$;

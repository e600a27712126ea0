-- Events are Avro single objects, written by the ledger itself: it alone knows ids and times, and a caller cannot
-- forge them. Three small encoders do (Avro 1.12, "Binary Encoding"); SQL functions of one expression are inlined.

-- A length or count of at most 2,097,151 as a zig-zag varint.
CREATE FUNCTION avro_int(p_n int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN p_n < 64 THEN substring(int4send(p_n << 1) FROM 4)
    WHEN p_n < 8192 THEN substring(int4send(((((p_n << 1) & 127) | 128) << 8) + (p_n >> 6)) FROM 3)
    ELSE substring(int4send(((((p_n << 1) & 127) | 128) << 16) + ((((p_n >> 6) & 127) | 128) << 8) + (p_n >> 13)) FROM 2)
  END
$$;

-- A moment as timestamp-micros: from 1979 to 3111 its varint has exactly eight bytes.
CREATE FUNCTION avro_micros(p_at timestamptz) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT int8send((((z & 127) | 128) << 56) + ((((z >> 7) & 127) | 128) << 48) + ((((z >> 14) & 127) | 128) << 40)
    + ((((z >> 21) & 127) | 128) << 32) + ((((z >> 28) & 127) | 128) << 24) + ((((z >> 35) & 127) | 128) << 16)
    + ((((z >> 42) & 127) | 128) << 8) + ((z >> 49) & 127))
  FROM (SELECT ((extract(epoch FROM p_at) * 1000000)::bigint) << 1) AS _(z)
$$;

CREATE FUNCTION avro_text(p_text text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT avro_int(octet_length(p_text)) || convert_to(p_text, 'UTF8')
$$;

-- A union of null and string.
CREATE FUNCTION avro_maybe(p_text text) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_text IS NULL THEN '\x00'::bytea ELSE '\x02'::bytea || avro_text(p_text) END
$$;

-- The events' schemas. The fingerprints are CRC-64-AVRO of the canonical form; a test computes them anew.
INSERT INTO avro (fingerprint, schema) VALUES
  ('\x0b21bfa0ba696741', '{"type":"record","name":"Result","namespace":"deedbox","fields":[{"name":"status","type":"string"},{"name":"attempt","type":"int"},{"name":"result","type":["null","string"]},{"name":"error","type":["null","string"]},{"name":"first_sent_at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},{"name":"finished_at","type":{"type":"long","logicalType":"timestamp-micros"}}]}'),
  ('\x8e3bf5d2b522d2b9', '{"type":"record","name":"Step","namespace":"deedbox","fields":[{"name":"n","type":"int"},{"name":"kind","type":"string"},{"name":"whole","type":"boolean"},{"name":"reply","type":["null","string"]},{"name":"messages","type":["null","string"]},{"name":"shown","type":["null","string"]},{"name":"calls","type":["null","string"]},{"name":"created_at","type":{"type":"long","logicalType":"timestamp-micros"}}]}');

CREATE FUNCTION result_event(p_outcome outcome) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT '\xc3010b21bfa0ba696741'::bytea || avro_text(p_outcome.status) || avro_int(p_outcome.attempt)
    || avro_maybe(p_outcome.result::text) || avro_maybe(p_outcome.error::text)
    || CASE WHEN p_outcome.first_sent_at IS NULL THEN '\x00'::bytea ELSE '\x02'::bytea || avro_micros(p_outcome.first_sent_at) END
    || avro_micros(coalesce(p_outcome.finished_at, clock_timestamp()))
$$;

-- A journal entry. One that is too large for a record travels without its texts, and says so (whole = false).
CREATE FUNCTION step_event(p_step step) RETURNS bytea LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  head bytea := '\xc3018e3bf5d2b522d2b9'::bytea || avro_int(p_step.n) || avro_text(p_step.kind);
  texts bytea := avro_maybe(p_step.reply::text) || avro_maybe(p_step.messages::text) || avro_maybe(p_step.shown::text) || avro_maybe(p_step.calls::text);
BEGIN
  IF octet_length(texts) > 890000 THEN
    RETURN head || '\x00'::bytea || '\x00000000'::bytea || avro_micros(p_step.created_at);
  END IF;
  RETURN head || '\x01'::bytea || texts || avro_micros(p_step.created_at);
END $$;

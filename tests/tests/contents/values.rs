//! Values that a COPY file can get wrong.

use stillpoint_tests::Cluster;

use crate::compare::{WAYS, assert_dumped_as_by_pg_dump};

const TEXTS: &str = "
CREATE TABLE texts (id serial, word text, bytes bytea, NULL_too text);
INSERT INTO texts (word, bytes)
    SELECT 'x' || chr(i) || 'y' || chr(i), decode(lpad(to_hex(i), 2, '0'), 'hex')
      FROM generate_series(1, 255) AS i;
INSERT INTO texts (word)
    VALUES (''), (NULL), (E'\\\\N'), ('NULL'), (E'\\\\.'), (E'\\\\.\\n'), (E'\\n\\\\.\\n\\n\\n'),
           (E'\\t'), (E'\\r\\n'), (E'\\\\'), (E'\\\\\\\\n'), (' blank '), (E'\\\\x41'),
           ('\"quoted, comma\"'), (U&'\\+01F600\\FEFF\\200E'), (E'\\b\\f\\v\\x01\\x7f');
INSERT INTO texts (bytes) VALUES (''), (decode('5c2e0a', 'hex')), (decode('5c4e', 'hex'));
CREATE TABLE one_column (word text);
INSERT INTO one_column VALUES (''), (NULL), (E'\\\\.'), (E'\\\\N'), (''), (E'\\n');
CREATE TABLE padded (a char(5), b \"char\", c name, d varchar(3), e bit(3), f bit varying);
INSERT INTO padded VALUES ('ab', 'x', 'n', 'abc', B'101', B''), ('', '', '', '', B'000', B'1');
";

const NUMBERS: &str = "
CREATE TABLE numbers (d float8, r float4, n numeric, m money, i int8);
INSERT INTO numbers VALUES
    ('1.7976931348623157e308', '3.4028235e38', 'NaN', '-1234.56', -9223372036854775808),
    ('4.9406564584124654e-324', '1e-45', 'Infinity', '92233720368547758.07', 9223372036854775807),
    ('-0', '-0', '-Infinity', '0', 0), ('NaN', 'NaN', 10::numeric ^ 1000, NULL, NULL),
    ('Infinity', '-Infinity', 1e-1000, '1,000', 1),
    (0.1, 0.1, 0.1000, '0.01', 2), (pi(), pi(), pi()::numeric, '1', 3), (1e15 + 0.3, 16777217, -0.0, '2', 4);
";

const TIMES: &str = "
CREATE TABLE times (t timestamp, tz timestamptz, d date, i interval, h time, hz timetz);
INSERT INTO times VALUES
    ('4713-01-01 BC', '4713-01-01 00:00+00 BC', '4713-01-01 BC', '-1 year +2 days -03:04:05.6',
     '24:00', '00:00+15:59'),
    ('infinity', '-infinity', 'infinity', '1 mon -1 day', '00:00:00.000001', '23:59:59.999999-12'),
    ('294276-12-31 23:59:59.999999', '2021-03-28 02:30 Europe/Berlin', '5874897-12-31',
     '-178000000 years', NULL, NULL),
    ('2001-02-03 04:05:06', '1900-01-01 Asia/Kolkata', '2001-02-03', '@ 1 hour ago', '1:2', '1:2+3');
";

const STRUCTURES: &str = "
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', E'two\\nlines', '');
CREATE TYPE inner_type AS (a int, b text[]);
CREATE TYPE outer_type AS (c inner_type, d mood, e int4range);
CREATE DOMAIN positive AS int CHECK (VALUE > 0) DEFAULT 7;
CREATE DOMAIN words AS text[] CHECK (array_length(VALUE, 1) < 9);
CREATE TABLE structures (
    id positive, m mood, ms mood[], o outer_type, os outer_type[], w words,
    r int4range, ts tstzrange, mr nummultirange, j json, jb jsonb, p jsonpath, x xml, u uuid,
    a int[], aa text[][], v tsvector, q tsquery, n inet, c cidr, mac macaddr8, g polygon, b box[]);
INSERT INTO structures DEFAULT VALUES;
INSERT INTO structures VALUES (
    1, E'two\\nlines', '{sad,\"\",NULL}', ROW(ROW(1, '{\"a,b\",NULL,\"\"}'), '', 'empty'),
    ARRAY[ROW(NULL, 'sad', '[1,)')::outer_type, NULL], '{x,\"NULL\",NULL}',
    '(,5]', '[2001-01-01 00:00+05,infinity)', '{(1,2),[3.5,]}',
    E'{\"a\" :  [1, \"\\\\u0041\\\\n\"],\\n \"a\": 2}', '{\"b\": \"\\\\t\", \"a\": null}', '$.a[*] ? (@ > 1)',
    '<a b=\"c\">&lt;\n</a>', '00000000-0000-0000-0000-0000000000ff',
    '[-1:1]={1,NULL,3}', '{{a,\"b\\\\\\\\c\"},{\"d\\\"e\",\"{}\"}}', E'\\'it\\'\\'s\\':1A', '''a b'' & !c',
    '::1/64', '10.0.0.0/8', '08:00:2b:01:02:03:04:05', '((0,0),(1,1),(1e-300,2))', '{(1,1),(0,0)}');
";

const LARGE: &str = "
CREATE TABLE large (id int, word text, bytes bytea);
INSERT INTO large SELECT 1, repeat(E'twenty MB of it \\\\ \\n', 1100000), NULL;
INSERT INTO large SELECT 2, string_agg(md5(i::text), ''), decode(string_agg(md5(i::text), ''), 'hex')
  FROM generate_series(1, 60000) AS i;
ALTER TABLE large ALTER bytes SET STORAGE EXTERNAL;
INSERT INTO large SELECT 3, '', bytes FROM large WHERE id = 2;
CREATE TABLE many AS SELECT i AS id, i % 7 = 0 AS flag, nullif(md5(i::text), md5('5')) AS word
  FROM generate_series(1, 40000) AS i;
";

#[test]
fn every_value_comes_back_as_it_was() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    let mut session = cluster.session("source");
    for statements in [TEXTS, NUMBERS, TIMES, STRUCTURES, LARGE] {
        session.exec(statements);
    }
    assert_dumped_as_by_pg_dump(&cluster, "source", WAYS);
}

/// Settings that change how values, names and definitions read.
const SETTINGS: &[&str] = &[
    "datestyle = 'SQL, DMY'",
    "intervalstyle = 'sql_standard'",
    "extra_float_digits = -15",
    "bytea_output = 'escape'",
    "timezone = 'Asia/Kathmandu'",
    "search_path = decoys, public",
    "quote_all_identifiers = on",
    "standard_conforming_strings = off",
    "default_transaction_read_only = on",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_deferrable = on",
    "row_security = on",
    "xmloption = 'document'",
    "client_min_messages = 'error'",
    "idle_in_transaction_session_timeout = '30s'",
];

#[test]
fn settings_of_role_and_database_do_not_change_a_dump() {
    let cluster = Cluster::start();
    cluster.create_database("source");
    let mut session = cluster.session("source");
    session.exec(TIMES);
    session.exec(NUMBERS);
    session.exec(TEXTS);
    // What a search path with this schema first would find instead.
    session.exec(
        "CREATE SCHEMA decoys; \
         CREATE TABLE decoys.texts (id int); \
         CREATE VIEW decoys.pg_class AS SELECT 1 AS oid; \
         CREATE FUNCTION decoys.count(int) RETURNS int LANGUAGE sql AS 'SELECT 0'; \
         CREATE DOMAIN decoys.int4 AS text; \
         CREATE FUNCTION decoys.never(oid, oid) RETURNS bool LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR decoys.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = decoys.never)",
    );
    session.exec("CREATE ROLE dumper SUPERUSER LOGIN");
    for setting in SETTINGS {
        session.exec(&format!("ALTER DATABASE source SET {setting}"));
        session.exec(&format!("ALTER ROLE dumper SET {setting}"));
    }
    assert_dumped_as_by_pg_dump(&cluster, "source", &[&["-j2"], &["-j2", "-U", "dumper"]]);
}

-- stillpoint 0.1.0 to 0.2.0: the ledger

\echo Use "ALTER EXTENSION stillpoint UPDATE TO '0.2.0'" to load this file. \quit

-- One row says: the bytes of this file, as an earlier backup knows them, are void. The library
-- writes it by itself, see docs/ledger.md; nobody else is to write it.
-- USING heap: it writes by the functions of that access method, whatever the default is.
CREATE TABLE stillpoint.invalidation (
    xid xid8 NOT NULL,
    finished_xid xid8,
    lsn pg_lsn NOT NULL,
    recorded_at timestamptz NOT NULL,
    database oid NOT NULL,
    tablespace oid NOT NULL,
    filenode oid NOT NULL,
    replaced_by oid,
    relation oid NOT NULL,
    relation_name text NOT NULL,
    relation_kind "char" NOT NULL,
    command text,
    effect text NOT NULL,
    rows_kept bool NOT NULL
) USING heap;

-- The one column by which rows are found: open ones by NULL, and what a bookmark does not cover
-- by the number of a transaction.
CREATE INDEX invalidation_finished_xid_idx ON stillpoint.invalidation (finished_xid);

-- A row that is deleted leaves no trace for logical decoding, and a publication FOR ALL TABLES
-- has nothing to publish.
ALTER TABLE stillpoint.invalidation REPLICA IDENTITY NOTHING;

REVOKE ALL ON stillpoint.invalidation FROM PUBLIC;

COMMENT ON TABLE stillpoint.invalidation IS
    'files whose bytes an earlier file-level backup may no longer trust';
COMMENT ON COLUMN stillpoint.invalidation.xid IS 'top-level transaction that has recorded this';
COMMENT ON COLUMN stillpoint.invalidation.finished_xid IS
    'transaction that has recorded the end of the work; NULL while it goes on';
COMMENT ON COLUMN stillpoint.invalidation.lsn IS 'where the WAL was when this was recorded';
COMMENT ON COLUMN stillpoint.invalidation.database IS '0 for a shared relation';
COMMENT ON COLUMN stillpoint.invalidation.tablespace IS 'never 0';
COMMENT ON COLUMN stillpoint.invalidation.filenode IS 'the file whose bytes are void';
COMMENT ON COLUMN stillpoint.invalidation.replaced_by IS 'the new file, if there is one';
COMMENT ON COLUMN stillpoint.invalidation.command IS
    'tag of the statement that did it; NULL if it was none';
COMMENT ON COLUMN stillpoint.invalidation.effect IS
    'announced, replaced, compacted, pages or dropped';
COMMENT ON COLUMN stillpoint.invalidation.rows_kept IS
    'whether the new file holds every version of every row of the old one';

-- Since when there is a ledger in this database: one row, by begin_ledger() below.
CREATE TABLE stillpoint.recording (
    since timestamptz NOT NULL
) USING heap;

ALTER TABLE stillpoint.recording REPLICA IDENTITY NOTHING;

REVOKE ALL ON stillpoint.recording FROM PUBLIC;

COMMENT ON TABLE stillpoint.recording IS 'since when this database has a ledger';

-- SECURITY DEFINER: it counts the ledger's rows, which are nobody's to read, and tells nothing
-- of what they say.
-- PARALLEL UNSAFE: a parallel worker may not take the latest snapshot.
CREATE FUNCTION stillpoint.status()
    RETURNS TABLE (
        preloaded bool,
        recording bool,
        complete_since timestamptz,
        rows bigint,
        bytes bigint,
        oldest_bookmark text
    )
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'status_wrapper';

COMMENT ON FUNCTION stillpoint.status() IS 'whether the ledger records, and since when';

-- It takes rows out in the ledger's own way, so that no publication has to do with it. For whoever
-- administers the ledger: nobody else may shorten it.
CREATE FUNCTION stillpoint.prune() RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'prune_wrapper';

REVOKE EXECUTE ON FUNCTION stillpoint.prune() FROM PUBLIC;

COMMENT ON FUNCTION stillpoint.prune() IS
    'removes from the ledger what is older than stillpoint.ledger_retention';

-- Refuses a schema whose owner could drop the ledger, and a database where transactions are
-- prepared that nothing has recorded; notes the beginning; warns if the library is not in every
-- session, so that nothing will be recorded.
CREATE FUNCTION stillpoint.begin_ledger() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'begin_ledger_wrapper';
SELECT stillpoint.begin_ledger();
DROP FUNCTION stillpoint.begin_ledger();

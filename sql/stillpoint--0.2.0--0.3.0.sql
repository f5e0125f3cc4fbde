-- stillpoint 0.2.0 to 0.3.0: reading the ledger

\echo Use "ALTER EXTENSION stillpoint UPDATE TO '0.3.0'" to load this file. \quit

-- The row that is there is of a ledger without a name; begin_ledger() below gives one. Nobody has a
-- bookmark yet.
ALTER TABLE stillpoint.recording
    ADD COLUMN ledger text,
    ADD COLUMN database oid,
    ADD COLUMN run text;

COMMENT ON FUNCTION stillpoint.prune() IS
    'removes from the ledger what no bookmark needs, and what is older than stillpoint.ledger_retention';

-- Every bookmark that is valid. The library writes here, too.
CREATE TABLE stillpoint.bookmark (
    id text NOT NULL,
    bookmark text NOT NULL,
    database oid NOT NULL,
    taken_at timestamptz NOT NULL,
    xid xid8 NOT NULL,
    seen text NOT NULL,
    run text,
    consumer text
) USING heap;

ALTER TABLE stillpoint.bookmark REPLICA IDENTITY NOTHING;

REVOKE ALL ON stillpoint.bookmark FROM PUBLIC;

COMMENT ON TABLE stillpoint.bookmark IS 'moments that a reader of the ledger can come back to';
COMMENT ON COLUMN stillpoint.bookmark.bookmark IS 'what bookmark() or begin_backup() has returned';
COMMENT ON COLUMN stillpoint.bookmark.seen IS 'its snapshot: XMIN:XMAX:XIP,...';
COMMENT ON COLUMN stillpoint.bookmark.run IS
    'name of the time in which nothing went unrecorded; NULL if nobody knows';
COMMENT ON COLUMN stillpoint.bookmark.consumer IS
    'consumer whose backup has begun with it; NULL after bookmark()';

-- Backup tools, each with the bookmark of its last backup. The library writes here, too.
CREATE TABLE stillpoint.consumer (
    number oid NOT NULL,
    name text NOT NULL,
    registered_at timestamptz NOT NULL,
    base text,
    backed_up_at timestamptz,
    begun text,
    lost bool NOT NULL
) USING heap;

ALTER TABLE stillpoint.consumer REPLICA IDENTITY NOTHING;

REVOKE ALL ON stillpoint.consumer FROM PUBLIC;

COMMENT ON TABLE stillpoint.consumer IS 'backup tools that read the ledger';
COMMENT ON COLUMN stillpoint.consumer.number IS
    'its running backup holds a lock: locktype object, classid this table, objid this number';
COMMENT ON COLUMN stillpoint.consumer.base IS 'bookmark, by its id, of the last backup';
COMMENT ON COLUMN stillpoint.consumer.begun IS
    'bookmark, by its id, of the backup that was begun last and has not ended';
COMMENT ON COLUMN stillpoint.consumer.lost IS
    'its bookmark was older than stillpoint.ledger_retention';

CREATE FUNCTION stillpoint.bookmark() RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'bookmark_wrapper';

COMMENT ON FUNCTION stillpoint.bookmark() IS
    'takes a bookmark of this moment; not in a transaction block, not on a standby';

-- Not STRICT: NULL answered by no rows would read as "nothing is void".
-- The path of a file is as in pg_relation_filepath(): of the main fork's first segment.
CREATE FUNCTION stillpoint.invalidated_since(bookmark text)
    RETURNS TABLE (
        path text,
        tablespace oid,
        filenode oid,
        relation oid,
        relation_name text,
        effects text[],
        commands text[],
        first_at timestamptz,
        last_at timestamptz
    )
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'invalidated_since_wrapper';

COMMENT ON FUNCTION stillpoint.invalidated_since(text) IS
    'files whose bytes are void for a backup that knows this bookmark';

CREATE FUNCTION stillpoint.invalidated_between(base text, upto text)
    RETURNS TABLE (
        path text,
        tablespace oid,
        filenode oid,
        relation oid,
        relation_name text,
        effects text[],
        commands text[],
        first_at timestamptz,
        last_at timestamptz
    )
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'invalidated_between_wrapper';

COMMENT ON FUNCTION stillpoint.invalidated_between(text, text) IS
    'files whose bytes became void between the two bookmarks';

CREATE FUNCTION stillpoint.register_consumer(name text) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'register_consumer_wrapper';

COMMENT ON FUNCTION stillpoint.register_consumer(text) IS 'makes a backup tool known';

CREATE FUNCTION stillpoint.drop_consumer(name text) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'drop_consumer_wrapper';

COMMENT ON FUNCTION stillpoint.drop_consumer(text) IS 'forgets a backup tool';

CREATE FUNCTION stillpoint.begin_backup(
    name text,
    OUT base text,
    OUT bookmark text,
    OUT complete bool,
    OUT reason text
)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'begin_backup_wrapper';

COMMENT ON FUNCTION stillpoint.begin_backup(text) IS
    'begins a backup: the bookmark of the last one, and a new one';

CREATE FUNCTION stillpoint.end_backup(name text, bookmark text) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'end_backup_wrapper';

COMMENT ON FUNCTION stillpoint.end_backup(text, text) IS
    'the backup that began with this bookmark is complete: the next one is based on it';

CREATE VIEW stillpoint.consumers AS
    SELECT c.name,
           c.registered_at,
           c.backed_up_at AS last_backup_at,
           b.bookmark,
           c.lost,
           (SELECT l.pid
              FROM pg_catalog.pg_locks AS l
             WHERE l.locktype = 'object' AND l.granted
               AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d
                                  WHERE d.datname = pg_catalog.current_database())
               AND l.classid = 'stillpoint.consumer'::pg_catalog.regclass
               AND l.objid = c.number) AS running_pid
      FROM stillpoint.consumer AS c
      LEFT JOIN stillpoint.bookmark AS b ON b.id = c.base;

REVOKE ALL ON stillpoint.consumers FROM PUBLIC;

COMMENT ON VIEW stillpoint.consumers IS 'backup tools, and what each of them has';

-- For tools that look for files that a VACUUM may have changed in place, by number and position
-- in the WAL alone. It knows nothing of bookmarks: a transaction's record is older than its
-- commit.
CREATE VIEW stillpoint.possible_vacuum_list AS
    SELECT i.filenode, pg_catalog.max(i.lsn) AS vacuum_lsn
      FROM stillpoint.invalidation AS i
     WHERE i.database IN (0, (SELECT d.oid FROM pg_catalog.pg_database AS d
                               WHERE d.datname = pg_catalog.current_database()))
     GROUP BY i.filenode;

REVOKE ALL ON stillpoint.possible_vacuum_list FROM PUBLIC;

COMMENT ON VIEW stillpoint.possible_vacuum_list IS
    'files that were replaced or worked on, with the latest position in the WAL';

-- Who may read the schema may not yet run backups: that moves bookmarks, shortens the ledger, and
-- tells the names of all relations.
REVOKE EXECUTE ON FUNCTION
    stillpoint.bookmark(),
    stillpoint.invalidated_since(text),
    stillpoint.invalidated_between(text, text),
    stillpoint.register_consumer(text),
    stillpoint.drop_consumer(text),
    stillpoint.begin_backup(text),
    stillpoint.end_backup(text, text)
    FROM PUBLIC;

-- Refuses a schema whose owner could drop the ledger, and a database where transactions are
-- prepared that nothing has recorded; notes the beginning; warns if the library is not in every
-- session, so that nothing will be recorded.
CREATE FUNCTION stillpoint.begin_ledger() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'begin_ledger_wrapper';
SELECT stillpoint.begin_ledger();
DROP FUNCTION stillpoint.begin_ledger();

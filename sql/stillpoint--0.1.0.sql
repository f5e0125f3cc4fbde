-- stillpoint 0.1.0

\echo Use "CREATE EXTENSION stillpoint" to load this file. \quit

-- Whoever is to call these functions needs USAGE on the schema. Its owner alone has it at first.
--
-- Every name is written with its schema: pg_catalog comes first in the search path even here, and
-- a bare version() would mean the server's own.

CREATE FUNCTION stillpoint.version() RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'version_wrapper';

COMMENT ON FUNCTION stillpoint.version() IS 'version of the library that the server has loaded';

-- VOLATILE: what it compares with is the present, another one at each call, and the locks that
-- it asks for are those of the moment.
-- PARALLEL UNSAFE: a parallel worker holds none of the transaction's locks and may not take the
-- latest snapshot.
-- Not STRICT: NULL answered by no rows would read as "nothing has changed".
-- search_path: the catalog queries find the server's own operators, whatever the caller's path
-- leads to.
-- jit: the queries of ten thousand relations look costly enough to be compiled, and compiling
-- takes longer than it saves.
CREATE FUNCTION stillpoint.changed_relations(relations oid[])
    RETURNS TABLE (
        relation oid,
        schema_name text,
        relation_name text,
        reasons text[],
        rows_kept bool,
        filenode_snapshot oid,
        filenode_latest oid,
        ancestors oid[]
    )
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
    AS 'MODULE_PATHNAME', 'changed_relations_wrapper';

COMMENT ON FUNCTION stillpoint.changed_relations(oid[]) IS
    'which of these relations have changed since the transaction''s snapshot, and how';

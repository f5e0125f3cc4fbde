-- All ancestors of the given relations, through every parent, under the snapshot that runs
-- this query.
--
-- $1 oid[]: the relations. One row for each that has a parent. A relation that is reached on
-- several ways (an inheritance child of two parents with a common one) is named once.
WITH RECURSIVE lineage (relation, ancestor) AS (
    SELECT i.inhrelid, i.inhparent
      FROM pg_catalog.pg_inherits AS i
     WHERE i.inhrelid = ANY ($1::pg_catalog.oid[])
     UNION
    SELECT l.relation, i.inhparent
      FROM lineage AS l
      JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = l.ancestor
)
SELECT l.relation,
       pg_catalog.array_agg(l.ancestor ORDER BY l.ancestor) AS ancestors
  FROM lineage AS l
 GROUP BY l.relation

-- What a relation is, in raw catalog columns, under the snapshot that runs this query.
--
-- $1 oid[]: the relations. One row for each that the snapshot sees; a relation without columns
-- has NULL columns, one without parents NULL parents.
--
-- Raw columns only. pg_relation_filenode(), format_type(), casts to regclass and the
-- pg_get_*() functions answer from the live catalog whatever snapshot runs them: with one of
-- them here, the check would compare the present with itself.
--
-- The subqueries are one index scan for each relation whatever the planner believes of the
-- catalogs, so that one relation and ten thousand are both quick, analyzed or not.
SELECT c.oid AS relation,
       n.nspname::pg_catalog.text AS schema_name,
       c.relname::pg_catalog.text AS relation_name,
       c.relkind::pg_catalog.text AS kind,
       c.relam AS access_method,
       c.reltablespace AS tablespace,
       c.relfilenode AS filenode,
       (SELECT pg_catalog.string_agg(
                   pg_catalog.concat_ws(' ', a.attnum, a.atttypid, a.atttypmod, a.attisdropped,
                                        a.attgenerated, pg_catalog.quote_literal(a.attname)),
                   ', ' ORDER BY a.attnum)
          FROM pg_catalog.pg_attribute AS a
         WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns,
       -- A partition whose concurrent detaching has begun is detached for every later
       -- snapshot. pg_inherits has the column since PostgreSQL 14. Written without a table's
       -- name it means that column where there is one, and else before_14's.
       (SELECT pg_catalog.array_agg(i.inhparent ORDER BY i.inhparent)
          FROM pg_catalog.pg_inherits AS i
         WHERE i.inhrelid = c.oid AND NOT inhdetachpending) AS parents
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 CROSS JOIN (VALUES (false)) AS before_14 (inhdetachpending)
 WHERE c.oid = ANY ($1::pg_catalog.oid[])

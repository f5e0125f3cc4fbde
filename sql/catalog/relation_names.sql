-- Which relations bear the given names under the snapshot that runs this query.
--
-- $1 text[], $2 text[]: schema names and relation names, pairwise. One row for each pair that
-- names a relation.
SELECT n.nspname::pg_catalog.text AS schema_name,
       c.relname::pg_catalog.text AS relation_name,
       c.oid AS relation
  FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]),
                  pg_catalog.unnest($2::pg_catalog.text[])) AS wanted (schema_name, relation_name)
  JOIN pg_catalog.pg_namespace AS n ON n.nspname = wanted.schema_name::pg_catalog.name
  JOIN pg_catalog.pg_class AS c
    ON c.relnamespace = n.oid AND c.relname = wanted.relation_name::pg_catalog.name

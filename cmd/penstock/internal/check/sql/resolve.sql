-- The table that the connection finds by the quoted name $1.
select n.nspname::text, c.relname::text
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass($1)

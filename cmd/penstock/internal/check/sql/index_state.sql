-- The relation of schema $1 and name $2: its kind, and for an index whether it is valid and whether
-- a session is creating it.
select c.relkind in ('i', 'I'),
       coalesce(i.indisvalid, false),
       exists (select from pg_catalog.pg_stat_progress_create_index p where p.index_relid = c.oid)
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  left join pg_catalog.pg_index i on i.indexrelid = c.oid
 where n.nspname = $1 and c.relname = $2

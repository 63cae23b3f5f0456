-- The leaf partitions of table $1.
select n.nspname::text, c.relname::text
  from pg_partition_tree($1::oid::regclass) p
  join pg_catalog.pg_class c on c.oid = p.relid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where p.isleaf and p.relid <> $1
 order by 1, 2

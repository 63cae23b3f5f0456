select n.nspname, c.relname
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass($1) and c.relkind in ('r', 'p')

-- The subscription of a name, and those over a table, as which the name may be meant.
--   $1 name, $2 the table's name, quoted (null: no table)
select s.id, s.name, s.source, n.nspname, c.relname
  from {schema}._adopt_subscription s
  left join (pg_class c join pg_namespace n on n.oid = c.relnamespace)
         on c.oid = to_regclass($2) and s.source = format('%I.%I', n.nspname, c.relname)
 where s.name = $1 or c.oid is not null
 order by s.name <> $1, s.id

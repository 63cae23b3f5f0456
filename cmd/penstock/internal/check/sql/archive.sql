-- Whether the role may insert into the table of schema $1 and name $2, and its columns.
select has_table_privilege(c.oid, 'insert'),
       array(select a.attname::text
               from pg_catalog.pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1 and c.relname = $2

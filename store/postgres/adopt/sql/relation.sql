-- The relation that a name leads to.
--   $1 the table's name, quoted
select c.oid, format('%I.%I', n.nspname, c.relname), c.relkind::text,
       has_table_privilege(c.oid, 'delete'), has_table_privilege(c.oid, 'insert'), row_security_active(c.oid)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass($1)

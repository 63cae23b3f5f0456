-- The table itself: $1 schema, $2 name.
select c.oid,
       c.relkind::text,
       c.relpersistence::text,
       row_security_active(c.oid),
       coalesce(c.reloptions, '{}'),
       current_setting('server_version_num')::int,
       split_part(current_setting('server_version'), ' ', 1),
       current_setting('block_size')::int,
       current_user::text,
       has_schema_privilege(n.oid, 'usage')
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1 and c.relname = $2

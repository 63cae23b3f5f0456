-- The table itself: $1 schema, $2 name.
select c.oid,
       c.relkind::text,
       c.relpersistence::text,
       c.relrowsecurity and not (pg_has_role(c.relowner, 'usage') and not c.relforcerowsecurity)
         and not (select r.rolbypassrls or r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user),
       coalesce(c.reloptions, '{}'),
       current_setting('server_version_num')::int,
       split_part(current_setting('server_version'), ' ', 1),
       current_setting('block_size')::int,
       current_user::text,
       has_schema_privilege(n.oid, 'usage')
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1 and c.relname = $2

-- What doctor looks at of the server and the role: one row.
--   $1 names of settings
select clock_timestamp(), current_setting('server_version'), pg_is_in_recovery(), current_user::text,
       array(select s.name || '=' || s.setting from pg_settings s where s.name = any ($1::text[]) order by s.name),
       (select coalesce(sum(numbackends), 0)::bigint from pg_stat_database),
       to_regclass('{schema}._migration') is not null
         and pg_has_role((select c.relowner from pg_class c where c.oid = to_regclass('{schema}._migration')), 'usage'),
       coalesce((select pg_get_userbyid(c.relowner)::text from pg_class c where c.oid = to_regclass('{schema}._migration')), ''),
       to_regclass('{schema}._cursor') is not null
         and has_schema_privilege((select c.relnamespace from pg_class c where c.oid = to_regclass('{schema}._cursor')), 'usage')
         and has_table_privilege(to_regclass('{schema}._cursor'), 'insert'),
       has_function_privilege('pg_catalog.pg_control_system()'::regprocedure, 'execute')

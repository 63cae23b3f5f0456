-- The schema of pgstattuple, if it is installed.
select n.nspname::text
  from pg_catalog.pg_extension e
  join pg_catalog.pg_namespace n on n.oid = e.extnamespace
 where e.extname = 'pgstattuple'

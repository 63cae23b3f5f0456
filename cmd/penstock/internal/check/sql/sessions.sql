-- The transactions of this database that hold back vacuum. Vacuums themselves do
-- not, nor do standbys here: they are in standbys.sql.
select a.pid,
       coalesce(a.usename::text, ''),
       coalesce(a.application_name, ''),
       coalesce(a.state, ''),
       extract(epoch from clock_timestamp() - a.xact_start)::float8,
       greatest(age(a.backend_xmin), age(a.backend_xid))::bigint,
       extract(epoch from clock_timestamp() - a.query_start)::float8,
       -- The state is null without the right to see it. Looking stops who locks, so only those that may wait are looked at.
       case when a.wait_event_type = 'Lock' or a.state is null then pg_blocking_pids(a.pid) else '{}' end
  from pg_catalog.pg_stat_activity a
 where a.datname = current_database() and a.pid <> pg_backend_pid() and a.leader_pid is null
   and (a.backend_xmin is not null or a.backend_xid is not null)
   and coalesce(a.backend_type, '') not in ('walsender', 'autovacuum worker') -- null without the right to see it
   and not exists (select from pg_catalog.pg_stat_progress_vacuum v where v.pid = a.pid)
 order by 6 desc, 1
 limit 100

-- The oldest of each kind of what holds back vacuum: kind, who, seconds (0: not known), transactions
-- begun since. A role that is not in pg_read_all_stats sees only its own sessions.
select distinct on (kind) kind, who, seconds, xids
  from (select 'session' as kind, a.pid || ' ' || coalesce(a.application_name, '') as who,
               coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::float8 as seconds,
               greatest(age(a.backend_xmin), age(a.backend_xid))::bigint as xids
          from pg_catalog.pg_stat_activity a
         where a.datname = current_database() and a.pid <> pg_backend_pid() and a.leader_pid is null
           and (a.backend_xmin is not null or a.backend_xid is not null)
           and coalesce(a.backend_type, '') not in ('walsender', 'autovacuum worker')
           and not exists (select from pg_catalog.pg_stat_progress_vacuum v where v.pid = a.pid)
        union all
        select 'standby', coalesce(r.application_name, ''), 0, age(r.backend_xmin)::bigint
          from pg_catalog.pg_stat_replication r where r.backend_xmin is not null
        union all
        select 'prepared_transaction', p.gid, extract(epoch from clock_timestamp() - p.prepared)::float8, age(p.transaction)::bigint
          from pg_catalog.pg_prepared_xacts p where p.database = current_database()
        union all
        select 'replication_slot', s.slot_name::text, 0, greatest(age(s.xmin), age(s.catalog_xmin))::bigint
          from pg_catalog.pg_replication_slots s where s.xmin is not null or s.catalog_xmin is not null) pins
 order by kind, seconds desc, xids desc

-- Standbys that report their oldest query (hot_standby_feedback).
select coalesce(r.application_name, ''), age(r.backend_xmin)::bigint
  from pg_catalog.pg_stat_replication r
 where r.backend_xmin is not null
 order by 2 desc
 limit 100

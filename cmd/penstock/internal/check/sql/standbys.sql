-- Standbys that report their oldest query (hot_standby_feedback); null without the
-- right to see it.
select coalesce(r.application_name, ''),
       age(r.backend_xmin)::bigint,
       pg_has_role('pg_read_all_stats', 'usage')
  from pg_catalog.pg_stat_replication r
 order by 2 desc nulls last
 limit 100

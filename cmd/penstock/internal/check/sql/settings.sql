-- The server's settings that matter here.
select name, setting
  from pg_catalog.pg_settings
 where name = any ('{autovacuum,track_counts,track_commit_timestamp,autovacuum_vacuum_threshold,
                     autovacuum_vacuum_scale_factor,autovacuum_vacuum_max_threshold}')

-- The server's counts for table $1 and its partitions.
select bool_and(c.reltuples >= 0 or s.n_live_tup > 0),
       coalesce(sum(case when c.reltuples >= 0 then c.reltuples else s.n_live_tup end), 0)::bigint,
       coalesce(sum(s.n_live_tup), 0)::bigint,
       coalesce(sum(s.n_dead_tup), 0)::bigint,
       coalesce(sum(s.n_tup_upd), 0)::bigint,
       coalesce(sum(s.n_tup_hot_upd), 0)::bigint,
       coalesce(sum(coalesce(s.seq_scan, 0) + coalesce(s.idx_scan, 0)), 0)::bigint,
       extract(epoch from clock_timestamp() - max(greatest(s.last_vacuum, s.last_autovacuum)))::float8
  from pg_catalog.pg_stat_all_tables s
  join pg_catalog.pg_class c on c.oid = s.relid
 where (s.relid = $1 and c.relkind <> 'p') or s.relid in (select relid from pg_partition_tree($1::oid::regclass) where isleaf)

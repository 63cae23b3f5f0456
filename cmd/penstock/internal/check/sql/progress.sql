-- How far the index is that process $1 creates.
select p.phase,
       case when p.tuples_total > 0 then p.tuples_done when p.blocks_total > 0 then p.blocks_done else p.lockers_done end,
       case when p.tuples_total > 0 then p.tuples_total when p.blocks_total > 0 then p.blocks_total else p.lockers_total end,
       coalesce(p.current_locker_pid, 0)::int
  from pg_catalog.pg_stat_progress_create_index p
 where p.pid = $1

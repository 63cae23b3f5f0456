-- Barriers that jobs wait for and that are not sealed, those with the oldest such job first.
select b.barrier, b.running, count(*), min(t.created_at)
  from penstock_barriers b
 cross join penstock_waits w on w.barrier = b.barrier
 cross join {jobs} t on t.seq = w.seq
 where b.queue_id = {queue} and not b.sealed
 group by b.barrier
 order by 4 limit 100

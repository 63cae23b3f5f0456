-- Barriers of the queue $1 that jobs wait for and that are not sealed, those with the oldest such job first.
select w.barrier, b.running, count(*), min(w.created_at)
  from (select unnest({schema}._waits_for(s.headers)) as barrier, s.created_at
          from (select s.* from {schema}._scheduled s where s.queue = (select q.id from {schema}._queue q where q.name = $1::text) and s.due = '-infinity' order by s.id limit 1000) s) w
 cross join lateral {schema}._barrier_state(w.barrier) b
 where b.stage = 0
 group by w.barrier, b.running
 order by 4 limit 100

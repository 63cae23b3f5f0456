-- All queues. Of the keyed jobs the first of each key that is not busy is ready,
-- the others wait. A job whose lease has ended is ready, too: the next claim finds it.
select q.id, q.name, q.lifo, q.paused, q.max_attempts, q.max_running, q.dedup_window,
       (select count(*) from penstock_ready r where r.queue_id = q.id)
         + (select count(*) from penstock_leases l where l.queue_id = q.id and l.until <= :now),
       (select coalesce(min(abs(r.rank)), 0) from penstock_ready r where r.queue_id = q.id),
       (select count(*) from penstock_leases l where l.queue_id = q.id and l.until > :now),
       (select count(*) from penstock_scheduled d where d.queue_id = q.id),
       (select count(*) from penstock_keyed k where k.queue_id = q.id)
         - (select count(*) from (select distinct k.key from penstock_keyed k where k.queue_id = q.id) f
             where not exists (select 1 from penstock_busy b where b.queue_id = q.id and b.key = f.key)),
       (select count(*) from penstock_dead_jobs d where d.queue_id = q.id)
  from penstock_queues q
 order by q.name

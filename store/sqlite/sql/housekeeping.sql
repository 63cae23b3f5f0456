-- What there is to do for a queue: leases that have ended or jobs that are due,
-- a periodic job, dedup keys that no longer count.
select q.id, q.dedup_window,
       exists (select 1 from penstock_leases l where l.queue_id = q.id and l.until <= :now)
         or exists (select 1 from penstock_scheduled d where d.queue_id = q.id and d.due <= :now),
       exists (select 1 from penstock_schedules s where s.queue_id = q.id and s.next <= :now),
       exists (select 1 from penstock_dedup d where d.queue_id = q.id and d.at <= :now - q.dedup_window / 1000)
  from penstock_queues q
 where q.name = :queue

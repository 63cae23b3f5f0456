-- What there is to do for a queue: leases that have ended or jobs that are due, a periodic job, dedup keys that no longer count.
select {clock},
       exists (select 1 from penstock_leases l where l.queue_id = q.id and l.until <= {clock})
         or exists (select 1 from penstock_scheduled d where d.queue_id = q.id and d.due <= {clock}),
       exists (select 1 from penstock_schedules s where s.queue_id = q.id and s.next <= {by}),
       exists (select 1 from penstock_dedup d where d.queue_id = q.id and d.at <= {clock} - q.dedup_window / 1000),
       q.policies > 0
  from penstock_queues q
 where q.id = {queue}

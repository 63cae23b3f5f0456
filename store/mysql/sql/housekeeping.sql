select exists (select 1 from {schema}.leases l where l.queue_id = {queue} and l.until <= utc_timestamp(6)),
       exists (select 1 from {schema}.schedules s where s.queue_id = {queue} and s.next <= {by}),
       exists (select 1 from {schema}.dedup d where d.queue_id = {queue} and d.at <= utc_timestamp(6) - interval (q.dedup_window div 1000) microsecond)
  from {schema}.queues q
 where q.id = {queue}

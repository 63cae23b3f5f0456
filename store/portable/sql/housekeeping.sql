select clock_timestamp(), exists (select from {schema}.leases l where l.queue_id = q.id and l.until > {since} and l.until <= (select clock_timestamp())),
       exists (select from {schema}.schedules s where s.queue_id = q.id and s.next <= {by}),
       exists (select from {schema}.dedup d where d.queue_id - q.id = 0 and d.at > {since}::timestamptz - q.dedup_window / 1000 * interval '1 microsecond' and d.at <= (select clock_timestamp()) - q.dedup_window / 1000 * interval '1 microsecond'),
       q.policies > 0
  from {schema}.queues q
 where q.id = {queue}

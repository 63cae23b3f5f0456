-- As read_leases, of those whose time is over.
select l.lease, l.seq, l.attempt, l.worker, coalesce(a.attempts, 0), a.since, a.failures, (select q.max_attempts from {schema}.queues q where q.id = {queue}),
       (select t.headers from {jobs} t force index (primary) where t.seq = l.seq), {clock}
  from {schema}.leases l
  left join {schema}.tries a on a.queue_id = {queue} and a.seq = l.seq
 where l.queue_id = {queue} and l.until <= utc_timestamp(6)
 order by l.until
 limit {most}
   for update

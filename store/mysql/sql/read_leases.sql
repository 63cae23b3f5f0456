-- Jobs that are claimed, with what they have been through: those of some leases. No other session ends them meanwhile.
select l.lease, l.seq, l.attempt, l.worker, coalesce(a.attempts, 0), a.since, a.failures, (select q.max_attempts from {schema}.queues q where q.id = {queue}),
       (select t.headers from {jobs} t force index (primary) where t.seq = l.seq), {clock}
  from {schema}.leases l
  left join {schema}.tries a on a.queue_id = {queue} and a.seq = l.seq
 where l.queue_id = {queue} and {l.lease in leases}
 order by l.lease
   for update

-- Jobs that are claimed, with what they have been through: those of some leases, or whose time is over.
select l.lease, l.seq, l.attempt, l.worker, coalesce(a.attempts, 0), a.since, a.failures, q.max_attempts,
       (select t.headers from {jobs} t where t.group_key = l.group_key and t.priority = l.priority and t.ts = l.ts and t.seq = l.seq), {clock}
  from {schema}.leases l
  join {schema}.queues q on q.id = l.queue_id
  left join {schema}.tries a on a.seq = any (array[l.seq])
 where l.queue_id - {queue} = 0 and {l.lease in leases}
 order by l.lease
   for update of l

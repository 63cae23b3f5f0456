-- As read_leases, of those whose time is over.
select l.lease, l.seq, l.attempt, l.worker, {tried}, {tried_since}, {tried_failures}, q.max_attempts,
       (select t.headers from {jobs} t where t.seq = l.seq), {clock}
  from penstock_leases l
  join penstock_queues q on q.id = {queue}
  left join penstock_histories h on h.queue_id = {queue} and h.seq = l.seq
 where l.queue_id = {queue} and l.until <= {clock}
 order by l.until
 limit {most}

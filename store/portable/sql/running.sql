-- The jobs that are leased, of the queue $1 or, if that is empty, of all: up to $2 of each, those for longest first.
select q.name, l.seq, l.lease, l.worker, l.attempt, l.ts, l.until, l.begun, clock_timestamp()
  from {schema}.queues q
  cross join lateral (select n.* from {schema}.leases n where n.queue_id = q.id order by n.begun limit $2) l
 where $1::text in ('', q.name)
 order by l.begun

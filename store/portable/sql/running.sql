-- The jobs that are leased, of the queue $1 or, if that is empty, of all: up to $2 of each, those for longest first. Then the last lease that has begun.
select q.name, l.seq, l.lease, l.worker, l.attempt, l.ts, l.until, clock_timestamp(), (select max(m.lease) from {schema}.leases m)
  from {schema}.queues q
  cross join lateral (select n.* from {schema}.leases n where n.queue_id = q.id order by n.lease limit $2) l
 where $1::text in ('', q.name)
 order by l.lease

-- The jobs that are leased, those for longest first: a lease's number is the time at which it began.
select q.name, l.seq, l.lease, l.worker, l.attempt, l.until
  from penstock_leases l join penstock_queues q on q.id = l.queue_id
 order by l.lease
 limit 1000

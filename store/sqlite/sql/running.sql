-- The jobs that are leased, of the queue ?1 or, if that is empty, of all. There are up to ?2 of each, so that a busy queue hides no
-- other's, those for longest first: a lease's number is the time at which it began.
select q.name, l.seq, l.lease, l.worker, l.attempt, l.until,
       case when json_valid(h.history) then h.history -> '$.report' end
  from (select l.*, row_number() over (partition by l.queue_id order by l.lease) as nth from penstock_leases l) l
  join penstock_queues q on q.id = l.queue_id
  left join penstock_histories h on h.queue_id = l.queue_id and h.seq = l.seq
 where ?1 in ('', q.name) and l.nth <= ?2
 order by l.lease
 limit 10000

-- A lease that is still held, with what its job has been through.
select l.seq, l.attempt, l.worker, coalesce(h.history, '')
  from penstock_leases l
  left join penstock_histories h on h.queue_id = l.queue_id and h.seq = l.seq
 where l.lease = ? and l.queue_id = ? and l.until > ?

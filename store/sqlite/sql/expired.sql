select l.seq, l.attempt, l.worker, coalesce(h.history, '')
  from penstock_leases l
  left join penstock_histories h on h.queue_id = l.queue_id and h.seq = l.seq
 where l.queue_id = ? and l.until <= ?
 order by l.until
 limit ?

-- The report of a claimed job, and its seq.
select l.seq, coalesce(case when json_valid(h.history) then h.history -> '$.report' end, '')
  from penstock_leases l
  left join penstock_histories h on h.queue_id = {queue} and h.seq = l.seq
 where l.lease = {lease} and l.queue_id = {queue} and l.until > {clock}

-- And what they have been through.
insert into penstock_histories (queue_id, seq, history)
select ?1, t.seq, d.history
  from json_each(?2) j
 cross join penstock_dead_jobs d on d.queue_id = ?1 and d.id = j.value
 cross join {table} t on t.id = d.id

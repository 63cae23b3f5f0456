-- Dead letters go back into their queue, at its end, with what they have been through.
insert into {jobs} (id, created_at, priority, group_key, key, headers, payload)
select d.seq, d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload
  from json_each({seqs}) j
 cross join penstock_dead_jobs d on d.queue_id = {queue} and d.seq = j.value
 order by j.key;

insert into penstock_histories (queue_id, seq, history)
select {queue}, t.seq, d.history
  from json_each({seqs}) j
 cross join penstock_dead_jobs d on d.queue_id = {queue} and d.seq = j.value
 cross join {jobs} t on t.id = d.seq

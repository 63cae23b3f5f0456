-- At the end of the queue: their place is the time of now.
insert into {jobs} (seq, group_key, priority, created_at, not_before, key, headers, payload)
select d.seq, d.group_key, d.priority, d.created_at, greatest({now}, d.created_at), d.key, d.headers, d.payload
  from {schema}.dead_jobs d
 where d.queue_id = {queue} and {d.seq in seqs}

insert into {schema}.tries (queue_id, seq, group_key, priority, ts, key, due, attempts, since, failures)
select {queue}, d.seq, d.group_key, d.priority, greatest({now}, d.created_at), coalesce(d.key, ''), {now}, least(d.attempts, 1000000000), d.since, d.failures
  from {schema}.dead_jobs d
 where d.queue_id = {queue} and {d.seq in seqs}

insert into {schema}.tries (queue_id, seq, group_key, `key`, due, attempts, since, failures)
select {queue}, d.seq, t.group_key, d.`key`, utc_timestamp(6), least(d.attempts, 1000000000), d.since, d.failures
  from {schema}.dead_jobs d straight_join {jobs} t on t.seq = d.seq
 where d.queue_id = {queue} and {d.seq in seqs}

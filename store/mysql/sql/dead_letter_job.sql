insert into {schema}.dead_jobs (queue_id, seq, priority, `key`, attempts, since, failures, error, died_at)
select {queue}, l.seq, t.priority, l.`key`, {attempts}, {since}, {failures}, {error}, utc_timestamp(6)
  from {schema}.leases l straight_join {jobs} t on t.seq = l.seq where l.lease = {lease}

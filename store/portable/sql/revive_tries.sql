insert into {schema}.tries (queue_id, seq, group_key, priority, ts, key, due, attempts, since, failures)
select $1, d.seq, d.group_key, d.priority, greatest($3, d.created_at), coalesce(d.key, ''), $3, d.attempts, d.since, d.failures
  from {schema}.dead_jobs d
 where d.queue_id = $1 and d.seq = any ($2::bigint[])

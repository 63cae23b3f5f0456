insert into {schema}.dead_jobs (queue_id, seq, group_key, priority, created_at, key, headers, payload, attempts, since, failures, died_at)
select {queue}, t.seq, t.group_key, t.priority, t.created_at, t.key, t.headers, t.payload, r.attempts, r.since, r.failures, clock_timestamp()
  from jsonb_to_recordset({verdicts}) r(lease bigint, dead boolean, attempts integer, since timestamptz, failures jsonb)
  join {schema}.leases l on l.queue_id - {queue} = 0 and l.lease = any (array[r.lease])
  join {jobs} t on t.group_key = any (array[l.group_key]) and t.priority = l.priority and t.ts = l.ts and t.seq = l.seq
 where r.dead

insert into {schema}.tries (queue_id, seq, group_key, priority, ts, key, due, attempts, since, failures)
select {queue}, l.seq, l.group_key, l.priority, l.ts, l.key, clock_timestamp() + r.after * interval '1 microsecond', r.attempts, r.since, r.failures
  from jsonb_to_recordset({verdicts}) r(lease bigint, dead boolean, after bigint, attempts integer, since timestamptz, failures jsonb)
  join {schema}.leases l on l.queue_id - {queue} = 0 and l.lease = any (array[r.lease])
 where not r.dead
   and (select t.seq from {jobs} t where t.group_key = l.group_key and t.priority = l.priority and t.ts = l.ts and t.seq = l.seq) is not null

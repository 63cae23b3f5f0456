-- Copies of jobs that are given up: [seq, history] of each.
insert into penstock_dead_jobs (queue_id, seq, group_key, priority, key, headers, payload, created_at, history, at)
select {queue}, coalesce(t.id, t.seq), t.group_key, t.priority, t.key, t.headers, t.payload, t.created_at, json_extract(j.value, '$[1]'), {clock}
  from json_each({verdicts}) j
 cross join {jobs} t on t.seq = json_extract(j.value, '$[0]')

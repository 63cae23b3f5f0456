-- Copies of jobs that are given up. ?3 is a JSON array of [seq, history].
insert into penstock_dead_jobs (queue_id, id, group_key, priority, key, headers, payload, created_at, history, at)
select ?1, coalesce(t.id, t.seq), t.group_key, t.priority, t.key, t.headers, t.payload, t.created_at, json_extract(j.value, '$[1]'), ?2
  from json_each(?3) j
 cross join {table} t on t.seq = json_extract(j.value, '$[0]')

-- Copies of jobs that are given up: [seq, history] of each.
insert into penstock_dead_jobs (queue_id, seq, group_key, priority, key, headers, payload, created_at, history, at)
select {queue}, coalesce(t.id, t.seq), t.group_key, t.priority, t.key, t.headers, t.payload, t.created_at,
       case when json_valid(h.history) and h.history -> '$.report' is not null then json_set(json_extract(j.value, '$[1]'), '$.report', json(h.history -> '$.report'))
            else json_extract(j.value, '$[1]') end, {clock}
  from json_each({verdicts}) j
 cross join {jobs} t on t.seq = json_extract(j.value, '$[0]')
  left join penstock_histories h on h.queue_id = {queue} and h.seq = t.seq

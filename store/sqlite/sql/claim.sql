-- The jobs that are next.
select r.priority, r.rank, t.seq, coalesce(t.id, t.seq), t.created_at, coalesce(t.key, ''), coalesce(t.headers, ''), t.payload, coalesce(h.history, '')
  from penstock_ready r
 cross join {jobs} t on t.seq = abs(r.rank)
  left join penstock_histories h on h.queue_id = r.queue_id and h.seq = t.seq
 where r.queue_id = {queue} and r.group_key = {group}
 order by r.priority, r.rank
 limit {room}

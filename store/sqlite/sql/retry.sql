insert into penstock_parked (line_id, seq, id, key, topic, headers, payload, created_at, history)
select l.id, d.seq, d.id, d.key, d.topic, d.headers, d.payload, d.created_at, d.history
  from json_each(?2) j
  join penstock_dead_letters d on d.subscription_id = ?1 and d.seq = j.value
  join penstock_lines l on l.subscription_id = ?1 and l.key = '' and l.alone = d.seq
 where true
    on conflict (line_id, seq) do nothing

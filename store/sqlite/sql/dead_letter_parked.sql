-- The same of parked messages. ?3 is a JSON array of [number, history].
insert into penstock_dead_letters (subscription_id, seq, id, key, topic, headers, payload, created_at, history, at)
select ?1, p.seq, p.id, p.key, p.topic, p.headers, p.payload, p.created_at, json_extract(j.value, '$[1]'), ?2
  from json_each(?3) j
  join penstock_parked p on p.number = json_extract(j.value, '$[0]')
 where true
    on conflict (subscription_id, seq) do update set history = excluded.history, at = excluded.at

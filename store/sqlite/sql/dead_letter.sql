-- Messages that are given up, copied before the cursor passes them. ?3 is a JSON
-- array of [seq, history].
insert into penstock_dead_letters (subscription_id, seq, id, key, topic, headers, payload, created_at, history, at)
select ?1, t.seq, t.id, t.key, t.topic, t.headers, t.payload, t.created_at, json_extract(j.value, '$[1]'), ?2
  from json_each(?3) j
  join {table} t on t.seq = json_extract(j.value, '$[0]')
 where true
    on conflict (subscription_id, seq) do update set history = excluded.history, at = excluded.at

-- The messages of park_keys.sql, copied. One that is there
-- already was brought once more by a replay, and is left as it is.
-- ?2 is a JSON array of [seq, ..., history].
insert into penstock_parked (key_id, seq, id, key, topic, headers, payload, created_at, history)
select k.id, t.seq, t.id, t.key, t.topic, t.headers, t.payload, t.created_at, json_extract(j.value, '$[2]')
  from json_each(?2) j
  join {table} t on t.seq = json_extract(j.value, '$[0]')
  join penstock_parked_keys k on k.subscription_id = ?1 and k.key = cast(coalesce(t.key, '') as text)
   and k.seq = case cast(coalesce(t.key, '') as text) when '' then t.seq else 0 end
 where true
    on conflict (key_id, seq) do update set seq = excluded.seq

insert into penstock_parked (key_id, seq, id, key, topic, headers, payload, created_at, history)
select k.id, d.seq, d.id, d.key, d.topic, d.headers, d.payload, d.created_at, d.history
  from json_each(?2) j
  join penstock_dead_letters d on d.subscription_id = ?1 and d.seq = j.value
  join penstock_parked_keys k on k.subscription_id = ?1 and k.key = '' and k.seq = d.seq
 where true
    on conflict (key_id, seq) do nothing

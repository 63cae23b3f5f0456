-- What jobs have been through. ?2 is a JSON array of [seq, history].
insert into penstock_histories (queue_id, seq, history)
select ?1, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]')
  from json_each(?2) j
 where true
    on conflict (queue_id, seq) do update set history = excluded.history

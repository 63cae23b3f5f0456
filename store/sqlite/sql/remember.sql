-- What jobs have been through: [seq, history] of each.
insert into penstock_histories (queue_id, seq, history)
select {queue}, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]')
  from json_each({verdicts}) j
 where true
    on conflict (queue_id, seq) do update set history = excluded.history

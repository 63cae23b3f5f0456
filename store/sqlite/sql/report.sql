-- A report is kept with the failures of its job. Where these cannot be read, it takes their place.
insert into penstock_histories (queue_id, seq, history)
values ({queue}, {seq}, json_object('attempts', 0, 'report', json({report})))
    on conflict (queue_id, seq) do update
   set history = case when json_valid(history) then json_set(history, '$.report', json({report})) else history end

-- What jobs have been through: [seq, history] of each. A report stays.
insert into penstock_histories (queue_id, seq, history)
select {queue}, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]')
  from json_each({verdicts}) j
 where true
    on conflict (queue_id, seq) do update set history = case when json_valid(penstock_histories.history) and penstock_histories.history -> '$.report' is not null
           then json_set(excluded.history, '$.report', json(penstock_histories.history -> '$.report')) else excluded.history end

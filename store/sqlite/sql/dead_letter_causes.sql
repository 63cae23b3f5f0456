select coalesce(case when json_valid(history) then json_extract(history, '$.failures[#-1].error') end, ''), count(*), min(at), max(at)
  from penstock_dead_letters
 where subscription_id = :subscription and seq in ({chosen})
 group by 1
 order by 2 desc

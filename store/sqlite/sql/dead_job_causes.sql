select coalesce(case when json_valid(h.history) then json_extract(h.history, '$.failures[#-1].error') end, ''), count(*), min(h.at), max(h.at)
  from penstock_dead_jobs h
 where {chosen_jobs}
 group by 1
 order by 2 desc

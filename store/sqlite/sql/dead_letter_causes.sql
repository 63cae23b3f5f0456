select coalesce(case when json_valid(failures) then json_extract(failures, '$[#-1].error') end, ''), count(*), min(died_at), max(died_at)
  from (select e.failures, e.died_at
{chosen})
 group by 1
 order by 2 desc

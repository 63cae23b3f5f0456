select h.seq, h.group_key, h.priority, h.created_at * 1000, coalesce(h.key, ''), h.headers, h.payload, {tried}, {tried_failures}, h.at,
       coalesce(case when json_valid(h.history) then h.history -> '$.report' end, '')
  from penstock_dead_jobs h
 where {chosen_jobs}
 order by h.seq
 limit {most}

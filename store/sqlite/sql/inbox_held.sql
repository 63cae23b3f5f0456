select h.id, h.key, h.headers, length(h.payload), case when {id} <> '' then h.payload end, h.previous,
       exists (select 1 from {schema}.held p where p.inbox_id = {inbox} and p.id = h.previous), h.at, h.due
  from {schema}.held h
 where h.inbox_id = {inbox} and ({key} = '' or h.key = {key}) and ({previous} = '' or h.previous = {previous}) and ({id} = '' or h.id = {id})
 order by h.due, h.n
 limit {most}

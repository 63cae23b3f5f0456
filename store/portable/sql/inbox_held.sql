select h.id, h.key, h.headers, octet_length(h.payload), case when $4 <> '' then h.payload end, h.previous,
       exists (select from {schema}.held p where p.inbox_id = $1 and p.id = h.previous), h.at, h.due
  from {schema}.held h
 where h.inbox_id = $1 and ($2 = '' or h.key = $2) and ($3 = '' or h.previous = $3) and ($4 = '' or h.id = $4)
 order by h.due, h.at, h.id
 limit $5

select h.key
  from {schema}.held h
  join {schema}.inboxes i on i.id = h.inbox_id
 where i.consumer = $1 and h.due <= clock_timestamp() and h.key <> all ($2::text[])
 order by h.due, h.at, h.id
 limit 1

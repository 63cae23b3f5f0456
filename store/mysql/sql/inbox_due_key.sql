select h.`key`
  from {schema}.held h force index (held_due)
 where h.inbox_id = {inbox} and h.due <= utc_timestamp(6) and ({none} or not ({h.`key` in keys}))
 order by h.due, h.at, h.id
 limit 1

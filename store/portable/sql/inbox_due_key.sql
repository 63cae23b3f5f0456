select h.key
  from {schema}.held h
  join {schema}.inboxes i on i.id = h.inbox_id
 where i.consumer = {consumer} and h.due <= (select clock_timestamp()) and ({none} or not {h.key in keys})
 order by h.due, h.at, h.id
 limit 1

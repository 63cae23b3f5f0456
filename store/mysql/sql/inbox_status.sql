select i.consumer, i.keep, coalesce(h.n, 0), coalesce(h.bytes, 0), h.due,
       (select count(*) from {schema}.gaps g where g.inbox_id = i.id and g.at >= utc_timestamp(6) - interval i.keep microsecond)
  from {schema}.inboxes i
  left join (select inbox_id, count(*) as n, sum(octet_length(payload)) as bytes, min(due) as due from {schema}.held group by inbox_id) h on h.inbox_id = i.id
 order by i.consumer

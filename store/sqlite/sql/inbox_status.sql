select i.consumer, i.keep, count(h.n), coalesce(sum(length(h.payload)), 0), min(h.due),
       (select count(*) from {schema}.gaps g where g.inbox_id = i.id and g.at >= {clock} - i.keep)
  from {schema}.inboxes i left join {schema}.held h on h.inbox_id = i.id
 group by i.id
 order by i.consumer

-- ?1 now.
select i.consumer, i.keep, count(h.n), coalesce(sum(length(h.payload)), 0), coalesce(min(h.due), 0),
       (select count(*) from penstock_gaps g where g.inbox_id = i.id and g.at >= ?1 - i.keep)
  from penstock_inboxes i left join penstock_held h on h.inbox_id = i.id
 group by i.id
 order by i.consumer

delete from penstock_dedup
 where queue_id = {queue}
   and dedup_key in (select d.dedup_key from penstock_dedup d
                      where d.queue_id = {queue} and d.at <= {clock} - (select q.dedup_window from penstock_queues q where q.id = {queue}) / 1000
                      order by d.at limit {most})

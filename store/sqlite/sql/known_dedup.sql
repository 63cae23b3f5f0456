-- Jobs that came first with dedup keys.
select d.dedup_key, d.id
  from json_each({keys}) j
 cross join penstock_dedup d on d.queue_id = {queue} and d.dedup_key = j.value
 where d.at > {clock} - (select q.dedup_window from penstock_queues q where q.id = {queue}) / 1000

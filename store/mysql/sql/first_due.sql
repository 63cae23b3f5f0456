-- 127, which no priority has, if a job must be tried again: page_tried takes three times as long to read and to plan.
(select 127
   from {schema}.tries a force index (tries_due)
  where a.queue_id = {queue} and a.group_key = {group} and a.due > {tried} and a.due <= utc_timestamp(6)
 order by a.due
 limit 1)

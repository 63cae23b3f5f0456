select name, cron, group_key, priority, key, dedup_key, coalesce(headers, ''), payload
  from penstock_schedules
 where queue_id = ? and next <= ?
 order by next

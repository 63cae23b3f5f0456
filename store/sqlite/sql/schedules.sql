select name, cron, next, group_key, priority, key, dedup_key, coalesce(headers, ''), payload
  from penstock_schedules
 where queue_id = ?
 order by name

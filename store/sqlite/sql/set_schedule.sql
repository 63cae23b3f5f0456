-- The time it is due next stays if the times do.
insert into penstock_schedules (queue_id, name, cron, next, group_key, priority, key, dedup_key, headers, payload)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict (queue_id, name) do update
   set cron = excluded.cron,
       next = case when penstock_schedules.cron = excluded.cron then penstock_schedules.next else excluded.next end,
       group_key = excluded.group_key, priority = excluded.priority, key = excluded.key, dedup_key = excluded.dedup_key,
       headers = excluded.headers, payload = excluded.payload

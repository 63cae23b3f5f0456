-- The time it is due next stays if the times do.
insert into penstock_schedules (queue_id, name, cron, next, job, skip_overlap) values ({queue}, {name}, {cron}, {next}, cast({job} as text), {skip})
    on conflict (queue_id, name) do update
   set cron = excluded.cron, job = excluded.job, skip_overlap = excluded.skip_overlap,
       next = case when penstock_schedules.cron = excluded.cron then penstock_schedules.next else excluded.next end

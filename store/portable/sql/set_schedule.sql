insert into {schema}.schedules as s (queue_id, name, cron, next, job, skip_overlap) values ({queue}, {name}, {cron}, {next}, {job}, {skip})
    on conflict (queue_id, name) do update
   set cron = excluded.cron, job = excluded.job, skip_overlap = excluded.skip_overlap, next = case when s.cron = excluded.cron then s.next else excluded.next end

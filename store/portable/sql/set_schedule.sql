insert into {schema}.schedules as s (queue_id, name, cron, next, job) values ({queue}, {name}, {cron}, {next}, {job})
    on conflict (queue_id, name) do update
   set cron = excluded.cron, job = excluded.job, next = case when s.cron = excluded.cron then s.next else excluded.next end

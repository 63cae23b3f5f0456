insert into {schema}.schedules (queue_id, name, cron, next, job) values ({queue}, {name}, {cron}, {next}, {job})
    on duplicate key update next = case when cron = values(cron) then next else values(next) end, cron = values(cron), job = values(job)

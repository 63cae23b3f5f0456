insert into {schema}.schedules (queue_id, name, cron, next, job, skip_overlap) values ({queue}, {name}, {cron}, {next}, {job}, {skip})
    on duplicate key update next = case when cron = values(cron) then next else values(next) end, cron = values(cron), job = values(job), skip_overlap = values(skip_overlap)

select attempt, epoch, settled from {schema}.progress
 where subscription_id = {sub} and (epoch, attempt) > ({epoch}, {attempt}) and at < clock_timestamp() - interval '65 seconds'
 order by epoch, attempt
 limit 5000

select attempt, epoch, greatest(settled, 0) from {schema}.progress
 where subscription_id = {sub} and at < clock_timestamp() - interval '65 seconds'
 limit 5000

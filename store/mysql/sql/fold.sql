select attempt, epoch, greatest(settled, 0) from {schema}.progress
 where subscription_id = {sub} and at < utc_timestamp(6) - interval 65 second
 limit 5000

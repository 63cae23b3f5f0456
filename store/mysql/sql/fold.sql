select attempt, epoch, settled from {schema}.progress
 where (subscription_id = {sub} and epoch = {epoch} and attempt > {attempt} or subscription_id = {sub} and epoch > {epoch}) and at < utc_timestamp(6) - interval 65 second
 order by epoch, attempt
 limit 5000

select epoch = $2, exists (select from {schema}.progress p where p.subscription_id = $1 and p.epoch = $2 and p.attempt = $3)
  from {schema}.subscriptions
 where id = $1
   for update

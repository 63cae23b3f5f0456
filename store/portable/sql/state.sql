select epoch = $2,
       exists (select from {schema}.entries e where e.subscription_id = $1 and e.head and e.due <= clock_timestamp()),
       exists (select from {schema}.entries e where e.subscription_id = $1 and e.state = 3)
  from {schema}.subscriptions
 where id = $1

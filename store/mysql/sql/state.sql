select epoch = {epoch},
       exists (select 1 from {schema}.entries e where e.subscription_id = {sub} and e.head = 1 and e.due <= utc_timestamp(6)),
       exists (select 1 from {schema}.entries e where e.subscription_id = {sub} and e.state = 3)
  from {schema}.subscriptions
 where id = {sub}

select true
  from {schema}.subscriptions s
  join {schema}.members m on m.subscription_id = s.id
 where s.id = $1 and m.epoch = $2 and m.holder = $3 and {by_index}
   for share of s
   for update of m

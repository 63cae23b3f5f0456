select true
  from {schema}.subscriptions x
  join {schema}.members s on s.subscription_id = x.id
 where x.id = $1 and s.epoch = $2 and s.holder = $3 and s.buckets @> {owned} and {by_index}
   for share of x
   for update of s

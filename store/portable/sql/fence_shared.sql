select true
  from {schema}.subscriptions x
  join {schema}.members s on s.subscription_id = x.id
 where x.id = {sub} and s.epoch = {epoch} and s.holder = {holder} and s.buckets @> {owned} and {by_index}
   for share of x
   for update of s

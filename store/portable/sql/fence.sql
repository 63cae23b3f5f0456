select epoch = $2
  from {schema}.subscriptions
 where id = $1 and {by_index}
   for update

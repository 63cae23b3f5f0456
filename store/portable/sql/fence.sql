select epoch = $2 and holder = $3
  from {schema}.subscriptions
 where id = $1 and {by_index}
   for update

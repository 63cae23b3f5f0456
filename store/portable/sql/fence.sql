select epoch = {epoch} and holder = {holder}
  from {schema}.subscriptions
 where id = {sub} and {by_index}
   for update

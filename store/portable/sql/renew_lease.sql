update {schema}.subscriptions
   set lease_until = clock_timestamp() + {length} * interval '1 microsecond', low = greatest(low, {from})
 where id = {sub} and epoch = {epoch} and holder = {holder}

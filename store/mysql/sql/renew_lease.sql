update {schema}.subscriptions
   set lease_until = utc_timestamp(6) + interval {length} microsecond, low = greatest(low, {from})
 where id = {sub} and epoch = {epoch} and holder = {holder}

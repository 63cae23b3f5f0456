update {schema}.subscriptions
   set epoch = epoch + 1, holder = {holder}, holder_since = utc_timestamp(6), lease_until = utc_timestamp(6) + interval {length} microsecond
 where id = {sub}

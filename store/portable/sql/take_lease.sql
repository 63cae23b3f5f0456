update {schema}.subscriptions
   set epoch = epoch + 1, holder = {holder}, holder_since = clock_timestamp(), lease_until = clock_timestamp() + {length} * interval '1 microsecond'
 where id = {sub}

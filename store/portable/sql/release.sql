update {schema}.entries
   set due = clock_timestamp()
 where subscription_id - 0 = {sub} and head and {parked_key in keys}

update {schema}.entries e force index (entries_parked_key)
   set e.due = utc_timestamp(6)
 where e.subscription_id = {sub} and e.head = 1 and {e.parked_key in keys}

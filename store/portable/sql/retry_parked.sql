update {schema}.entries e
   set due = clock_timestamp()
 where e.subscription_id - 0 = {sub} and e.head and e.due > clock_timestamp() and ({all} or {e.parked_key in keys})
   and not (e.parked_key is not null and exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.hold = e.parked_key))

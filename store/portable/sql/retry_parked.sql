update {schema}.entries e
   set due = clock_timestamp()
 where e.subscription_id = {sub} and e.head and e.due > clock_timestamp() and ({all} or {e.line in keys})
   and not (e.line is not null and exists (select from {schema}.entries w where w.subscription_id = {sub} and w.hold = e.line))

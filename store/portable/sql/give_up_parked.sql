update {schema}.entries e
   set due = clock_timestamp(), failures = {failures}
 where e.subscription_id = {sub} and {e.seq in seqs} and e.state = 1 and e.head and e.due > clock_timestamp()
   and not (e.parked_key is not null and exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.hold = e.parked_key))

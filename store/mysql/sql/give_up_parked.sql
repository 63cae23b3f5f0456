update {schema}.entries e
  left join (select distinct w.hold from {schema}.entries w where w.subscription_id = {sub} and w.hold is not null) held on held.hold = e.parked_key
   set e.due = utc_timestamp(6), e.failures = {failures}
 where e.subscription_id = {sub} and {e.seq in seqs} and e.state = 1 and e.head = 1 and e.due > utc_timestamp(6) and held.hold is null

update {these_seqs} straight_join {schema}.entries e force index (primary) on e.subscription_id = {sub} and e.seq = d.seq
   set e.state = 0, e.hold = null, e.failures = null, e.error = null

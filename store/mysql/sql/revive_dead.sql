update {these_seqs} straight_join {schema}.entries e force index (primary) on e.subscription_id = {sub} and e.seq = d.seq
   set e.state = 1, e.head = true, e.due = utc_timestamp(6), e.died_at = null

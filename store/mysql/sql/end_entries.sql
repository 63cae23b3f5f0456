delete {schema}.entries from {these_seqs} straight_join {schema}.entries force index (primary) on subscription_id = {sub} and entries.seq = d.seq

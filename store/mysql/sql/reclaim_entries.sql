delete {schema}.entries from {these_seqs}
  join {schema}.subscriptions s on {s.id in subs}
  straight_join {schema}.entries force index (primary) on subscription_id = s.id and entries.seq = d.seq

select l.lease, l.attempt, l.until, t.seq, t.priority, t.created_at, coalesce(t.`key`, ''), t.headers, t.payload
  from {these_leases}
  straight_join {schema}.leases l force index (leases_lease) on l.lease = d.seq
  straight_join {jobs} t force index (primary) on t.seq = l.seq

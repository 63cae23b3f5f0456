-- The heads that are due, but for those of keys that are held or in flight.
select {message}, e.parked_key is not null, e.attempts, e.since, e.failures
  from penstock_entries e
 cross join {table} t on t.seq = e.seq
 where e.subscription_id = {sub} and e.head and e.due > {since} and e.due <= {clock}
   and e.seq not in (select value from json_each({seqs}))
   and (e.parked_key is null or e.parked_key not in (select value from json_each({keys})))
   and not (e.parked_key is not null and exists (select 1 from penstock_entries w where w.subscription_id = {sub} and w.hold = e.parked_key))
 order by e.due, e.seq
 limit {most}

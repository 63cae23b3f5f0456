-- Messages that are parked behind a head.
select {message}, 1, e.attempts, e.since, e.failures
  from penstock_entries e indexed by penstock_entries_by_key
 cross join {table} t on t.seq = e.seq
 where e.subscription_id = {sub} and e.parked_key = {key} and e.head = 0 and e.seq > {seq}
 order by e.seq
 limit {most}

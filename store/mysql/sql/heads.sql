-- The first of a parked key is the head, and no other. One that becomes it is due at once, unless it was parked just now.
update {schema}.entries e force index (entries_parked_key)
  join (select (select f.seq from {schema}.entries f where f.subscription_id = {sub} and f.parked_key = {key} order by f.ts, f.seq limit 1) as first_seq) f
   set e.due = case when e.seq <> f.first_seq or e.seq in ({fresh}) then e.due else utc_timestamp(6) end, e.head = e.seq = f.first_seq
 where e.subscription_id = {sub} and e.parked_key = {key} and (e.head and e.seq <> f.first_seq or e.seq = f.first_seq and not e.head)

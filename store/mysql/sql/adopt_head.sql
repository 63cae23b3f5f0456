-- The first of a parked key is due if no message is before it any more.
update {schema}.entries e force index (primary)
  join (select f.seq from {schema}.entries f where f.subscription_id = {sub} and f.parked_key = {key} order by f.ts, f.seq limit 1) f on e.seq = f.seq
   set e.head = true, e.due = utc_timestamp(6)
 where e.subscription_id = {sub} and not e.head

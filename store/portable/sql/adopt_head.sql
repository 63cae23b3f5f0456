-- The first of a parked key is due if no message is before it any more.
update {schema}.entries
   set head = true, due = clock_timestamp()
 where subscription_id = {sub} and not head
   and seq = (select f.seq from {schema}.entries f where f.subscription_id - 0 = {sub} and f.parked_key = {key} order by f.ts, f.seq limit 1)

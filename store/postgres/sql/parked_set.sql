-- The parked keys that are not over, and which of them are held.
--   $1 subscription, $2 limit
select l.parked_key, l.held is not null
  from {schema}._parked_key l
 where l.subscription = $1 and l.head is not null
   and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key)
 limit $2

-- Held parked keys whose dead letter is gone: someone discarded it, or it was delivered.
-- If it was sent back and is parked by itself now, it is not gone.
--   $1 subscription, $2 limit
select l.parked_key, l.head
  from {schema}._parked_key l
 where l.subscription = $1 and l.due = 'infinity' and l.head is not null
   and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key)
   and not exists (select from {schema}._dead_letter d where d.subscription = $1 and d.seq = l.held)
   and (select s.head from {schema}._parked_key s where s.subscription = $1 and s.parked_key = 's' || l.held order by s.n desc limit 1) is null
 limit $2

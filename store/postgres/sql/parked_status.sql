-- How many messages are parked, in how many lines, and how many of these are held.
--   $1 subscription
select coalesce(sum(c.messages), 0)::bigint, count(*), count(*) filter (where l.held is not null)
  from {schema}._parked_key l
 cross join lateral (select count(*) as messages from {schema}._parked m
                      where m.subscription = $1 and m.line = l.line and m.p >= l.head) c
 where l.subscription = $1 and l.head is not null
   and not exists (select from {schema}._parked_key x where x.subscription = $1 and x.line = l.line and x.n > l.n)

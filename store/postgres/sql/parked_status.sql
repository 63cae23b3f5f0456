-- How many messages are parked, in how many parked keys, and how many of these are held.
--   $1 subscription, $2 count up to so many of each, or null
with parked_key as materialized (
    select l.parked_key, l.head, l.held from {schema}._parked_key l
     where l.subscription = $1 and l.head is not null
       and not exists (select from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key and x.n > l.n)
     limit $2::bigint)
select (select count(*) from (
            select from parked_key l cross join lateral (select from {schema}._parked m where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head) m
             limit $2::bigint) m),
       count(*), count(*) filter (where l.held is not null)
  from parked_key l

-- How many messages are parked, in how many parked keys, how many of these are held, and the age of the oldest of their first messages.
--   $1 subscription, $2 count up to so many of each, or null
with parked_key as materialized (
    select l.parked_key, l.head, l.held from {schema}._parked_key l
     where l.subscription = $1 and l.head is not null
       and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key)
     limit $2::bigint)
select (select count(*) from (
            select from parked_key l cross join lateral (select from {schema}._parked m where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head offset 0) m
             limit $2::bigint) m),
       count(*), count(*) filter (where l.held is not null),
       coalesce(greatest(extract(epoch from clock_timestamp() - min(h.created_at)), 0), 0)::float8
  from parked_key l
  left join lateral (select m.created_at from {schema}._parked m where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head order by m.p limit 1) h on true

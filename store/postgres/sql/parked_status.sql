-- How many messages are parked, in how many lines, and how many of these are held.
--   $1 subscription, $2 count up to so many of each, or null
with line as materialized (
    select l.line, l.head, l.held from {schema}._parked_key l
     where l.subscription = $1 and l.head is not null
       and not exists (select from {schema}._parked_key x where x.subscription = $1 and x.line = l.line and x.n > l.n)
     limit $2::bigint)
select (select count(*) from (
            select from line l cross join lateral (select from {schema}._parked m where m.subscription = $1 and m.line = l.line and m.p >= l.head) m
             limit $2::bigint) m),
       count(*), count(*) filter (where l.held is not null)
  from line l

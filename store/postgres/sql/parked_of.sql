-- Which of these parked keys are not over.
--   $1 subscription, $2 parked keys
select c.parked_key
  from unnest($2::text[]) c(parked_key)
 cross join lateral (select l.head from {schema}._parked_key l
                      where l.subscription = $1 and l.parked_key = c.parked_key
                      order by l.n desc limit 1) state
 where state.head is not null

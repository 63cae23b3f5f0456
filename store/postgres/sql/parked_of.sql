-- Which of these lines are not over.
--   $1 subscription, $2 lines
select c.line
  from unnest($2::text[]) c(line)
 cross join lateral (select l.head from {schema}._parked_key l
                      where l.subscription = $1 and l.line = c.line
                      order by l.n desc limit 1) state
 where state.head is not null

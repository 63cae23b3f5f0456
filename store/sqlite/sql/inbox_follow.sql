-- ?1 inbox, ?2 an id that is not held. What is held for it, and for that, in order.
with recursive line(id, step) as (
  select ?2, 0
  union all
  select h.id, line.step + 1 from line join penstock_held h on h.inbox_id = ?1 and h.previous = line.id
)
select h.id, h.key, h.headers, h.payload, h.previous
  from line join penstock_held h on h.inbox_id = ?1 and h.id = line.id
 order by line.step, h.n

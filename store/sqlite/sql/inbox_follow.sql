-- ?1 inbox, ?2 an id that is not held. What is held for it, and for that, in order, and what was handed over in its place. A
-- cross join keeps the order in which it is written: what is held is looked up.
with recursive chain(id, step) as (
  select ?2, 0
  union all
  select h.id, chain.step + 1
    from chain cross join penstock_held h indexed by penstock_held_previous
   where h.inbox_id = ?1 and h.previous = chain.id
)
select h.id, h.key, h.headers, h.payload, h.previous,
       (select coalesce(g.next, '') from penstock_gaps g where g.inbox_id = ?1 and g.id = h.id)
  from chain cross join penstock_held h
 where chain.step > 0 and h.inbox_id = ?1 and h.id = chain.id
 order by chain.step, h.n

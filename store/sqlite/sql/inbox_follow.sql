-- The messages held for an id, and for those, in order, and the one handed over in its place. It does not come again, should its producer have made a
-- circle. A cross join keeps the order in which it is written: what is held is looked up.
with recursive chain(id, step) as (
  select {id}, 0
  union all
  select h.id, chain.step + 1
    from chain cross join {schema}.held h indexed by penstock_held_previous
   where h.inbox_id = {inbox} and h.previous = chain.id and h.id <> {id}
)
select h.id, h.key, h.headers, h.payload, h.previous,
       (select coalesce(g.next, '') from {schema}.gaps g where g.inbox_id = {inbox} and g.id = h.id)
  from chain cross join {schema}.held h
 where chain.step > 0 and h.inbox_id = {inbox} and h.id = chain.id
 order by chain.step, h.n

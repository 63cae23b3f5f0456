-- The messages held for an id, and for those, in order, and the one handed over in its place. It does not come again, should
-- its producer have made a circle.
with recursive chain as (
  select h.id, 1 as step from {schema}.held h where h.inbox_id = {inbox} and h.previous = {id} and h.id <> {id}
  union all
  select h.id, chain.step + 1
    from chain
    join {schema}.held h on h.inbox_id = {inbox} and h.previous = chain.id and h.id <> {id}
)
select h.id, h.`key`, h.headers, h.payload, h.previous,
       (select coalesce(g.next, '') from {schema}.gaps g where g.inbox_id = {inbox} and g.id = h.id)
  from chain
  straight_join {schema}.held h on h.inbox_id = {inbox} and h.id = chain.id
 order by chain.step, h.at, h.id

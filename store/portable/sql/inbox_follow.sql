-- The messages held for an id, and for those, in order, and the one handed over in its place. It does not come again, should
-- its producer have made a circle.
with recursive chain(inbox_id, id, step) as (
  select i.id, {id}::text, 0 from {schema}.inboxes i where i.consumer = {consumer}
  union all
  select h.inbox_id, h.id, chain.step + 1
    from chain
    join {schema}.held h on h.inbox_id = chain.inbox_id and h.previous = chain.id and h.id <> {id}
)
select h.id, h.key, h.headers, h.payload, h.previous,
       (select coalesce(g.next, '') from {schema}.gaps g where g.inbox_id = h.inbox_id and g.id = h.id)
  from chain
  join {schema}.held h on h.inbox_id = chain.inbox_id and h.id = chain.id
 where chain.step > 0
 order by chain.step, h.at, h.id

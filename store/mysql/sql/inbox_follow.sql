-- What is held for an id, and for that, in order. It does not come again, should its producer have made a circle.
with recursive line as (
  select h.id, 1 as step from {schema}.held h where h.inbox_id = {inbox} and h.previous = {id} and h.id <> {id}
  union all
  select h.id, line.step + 1
    from line
    join {schema}.held h on h.inbox_id = {inbox} and h.previous = line.id and h.id <> {id}
)
select h.id, h.`key`, h.headers, h.payload, h.previous
  from line
  straight_join {schema}.held h on h.inbox_id = {inbox} and h.id = line.id
 order by line.step, h.at, h.id

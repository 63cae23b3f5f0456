-- What is held for an id, and for that, in order. It does not come again, should its producer have made a circle.
with recursive line(inbox_id, id, step) as (
  select i.id, {id}::text, 0 from {schema}.inboxes i where i.consumer = {consumer}
  union all
  select h.inbox_id, h.id, line.step + 1
    from line
    join {schema}.held h on h.inbox_id = line.inbox_id and h.previous = line.id and h.id <> {id}
)
select h.id, h.key, h.headers, h.payload, h.previous
  from line
  join {schema}.held h on h.inbox_id = line.inbox_id and h.id = line.id
 where line.step > 0
 order by line.step, h.at, h.id

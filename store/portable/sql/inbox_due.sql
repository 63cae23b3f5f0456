-- Of the message of a key that is due first, the first one before it that does not follow a held one. A circle, which no
-- outbox makes, is cut at the first.
with recursive up(inbox_id, id, previous) as (
  (select h.inbox_id, h.id, h.previous
     from {schema}.held h
     join {schema}.inboxes i on i.id = h.inbox_id
    where i.consumer = {consumer} and h.due <= (select clock_timestamp()) and h.key = {key}
    order by h.due, h.at, h.id
    limit 1)
  union
  select h.inbox_id, h.id, h.previous
    from up
    join {schema}.held h on h.inbox_id = up.inbox_id and h.id = up.previous
)
select h.id, h.key, h.headers, h.payload, h.previous, exists (select from {schema}.received r where r.inbox_id = h.inbox_id and r.id = h.previous)
  from up
  join {schema}.held h on h.inbox_id = up.inbox_id and h.id = up.id
 order by exists (select from {schema}.held a where a.inbox_id = h.inbox_id and a.id = up.previous), h.due, h.at, h.id
 limit 1

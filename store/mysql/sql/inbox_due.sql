-- Of the message of a key that is due first, the first one before it that does not follow a held one. A circle, which no
-- outbox makes, is cut at the first.
with recursive up as (
  (select h.id, h.previous
     from {schema}.held h
    where h.inbox_id = {inbox} and h.due <= utc_timestamp(6) and h.`key` = {key}
    order by h.due, h.at, h.id
    limit 1)
  union
  select h.id, h.previous
    from up
    join {schema}.held h on h.inbox_id = {inbox} and h.id = up.previous
)
select h.id, h.`key`, h.headers, h.payload, h.previous, exists (select 1 from {schema}.received r where r.inbox_id = {inbox} and r.id = h.previous)
  from up
  straight_join {schema}.held h on h.inbox_id = {inbox} and h.id = up.id
 order by exists (select 1 from {schema}.held a where a.inbox_id = {inbox} and a.id = up.previous), h.due, h.at, h.id
 limit 1

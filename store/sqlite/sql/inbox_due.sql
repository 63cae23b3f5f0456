-- Of the message of a key that is due first, the first one before it that does not follow a held one. A circle, which no
-- outbox makes, is cut at the first.
with recursive up(id, previous) as (
  select id, previous from (select id, previous from {schema}.held where inbox_id = {inbox} and due <= {clock} and key = {key} order by due, n limit 1)
  union
  select h.id, h.previous from up cross join {schema}.held h where h.inbox_id = {inbox} and h.id = up.previous
)
select h.id, h.key, h.headers, h.payload, h.previous, exists (select 1 from {schema}.received r where r.inbox_id = {inbox} and r.id = h.previous)
  from up cross join {schema}.held h
 where h.inbox_id = {inbox} and h.id = up.id
 order by exists (select 1 from {schema}.held a where a.inbox_id = {inbox} and a.id = up.previous), h.due
 limit 1

-- ?1 inbox, ?2 now, ?3 keys to pass over, as JSON. Of the message that is due first, the first one before it that does not
-- follow a held one, and its predecessor. A circle, which no outbox makes, is cut at the first.
with recursive up(id, previous) as (
  select id, previous from (select id, previous from penstock_held where inbox_id = ?1 and due <= ?2 and key not in (select value from json_each(?3)) order by due, n limit 1)
  union
  select h.id, h.previous from up cross join penstock_held h where h.inbox_id = ?1 and h.id = up.previous
)
select h.id, h.key, h.headers, h.payload, h.previous
  from up cross join penstock_held h
 where h.inbox_id = ?1 and h.id = up.id
 order by exists (select 1 from penstock_held a where a.inbox_id = ?1 and a.id = up.previous), h.due
 limit 1

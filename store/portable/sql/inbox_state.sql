-- First, the message handed over in place of an id that was reported missing, '' if none was. Then whether its predecessor was received,
-- is held, was reported missing. Last, its key's head, and the parts behind that.
select (select coalesce(g.next, '') from {schema}.gaps g where g.inbox_id = i.id and g.id = {id}),
       exists (select from {schema}.received r where r.inbox_id = i.id and r.id = {previous}),
       exists (select from {schema}.held h where h.inbox_id = i.id and h.id = {previous}),
       exists (select from {schema}.gaps g where g.inbox_id = i.id and g.id = {previous}),
       k.id, k.behind
  from {schema}.inboxes i
  left join {schema}.key_heads k on k.inbox_id = i.id and k.key = {key}
 where i.consumer = {consumer}

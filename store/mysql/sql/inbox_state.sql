-- First, the message handed over in place of an id that was reported missing, '' if none was. Then whether its predecessor was received,
-- is held, was reported missing. Last, its key's head, and the parts behind that.
select (select coalesce(g.next, '') from {schema}.gaps g where g.inbox_id = {inbox} and g.id = {id}),
       exists (select 1 from {schema}.received r where r.inbox_id = {inbox} and r.id = {previous}),
       exists (select 1 from {schema}.held h where h.inbox_id = {inbox} and h.id = {previous}),
       exists (select 1 from {schema}.gaps g where g.inbox_id = {inbox} and g.id = {previous}),
       k.id, k.behind
  from (select 1) one
  left join {schema}.key_heads k on k.inbox_id = {inbox} and k.key_hash = unhex(sha2({key}, 256))

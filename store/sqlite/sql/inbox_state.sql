-- First, the message handed over in place of an id that was reported missing, '' if none was. Then whether its predecessor was received,
-- is held, was reported missing. Last, its key's head, and the parts behind that.
select (select coalesce(next, '') from {schema}.gaps where inbox_id = {inbox} and id = {id}),
       exists (select 1 from {schema}.received where inbox_id = {inbox} and id = {previous}),
       exists (select 1 from {schema}.held where inbox_id = {inbox} and id = {previous}),
       exists (select 1 from {schema}.gaps where inbox_id = {inbox} and id = {previous}),
       k.id, k.behind
  from (select 1) left join {schema}.key_heads k on k.inbox_id = {inbox} and k.key = {key}

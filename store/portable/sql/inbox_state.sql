-- Whether an id was reported missing; whether its predecessor was received, is held, was reported missing.
select exists (select from {schema}.gaps g where g.inbox_id = i.id and g.id = $2),
       exists (select from {schema}.received r where r.inbox_id = i.id and r.id = $3),
       exists (select from {schema}.held h where h.inbox_id = i.id and h.id = $3),
       exists (select from {schema}.gaps g where g.inbox_id = i.id and g.id = $3),
       coalesce((select k.id from {schema}.key_heads k where k.inbox_id = i.id and k.key = $4), '')
  from {schema}.inboxes i
 where i.consumer = $1

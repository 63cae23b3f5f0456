-- The backlog of a distributed outbox, which has one subscription at most.
select count(*), min(t.ts)
  from {table} t
 where t.seq not in (select e.seq from {schema}.entries e where e.subscription_id in (select x.id from {schema}.subscriptions x where x.outbox_id = {outbox}))

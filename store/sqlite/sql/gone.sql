-- Entries whose messages an application has deleted.
select e.subscription_id, e.seq, e.parked_key, e.hold
  from penstock_subscriptions s
 cross join penstock_entries e on e.subscription_id = s.id
  left join {table} t on t.seq = e.seq
 where s.outbox_id = {outbox} and t.seq is null
 limit {most}

-- Up to where an outbox is settled by all and replayed.
select coalesce(min(s.position), 0),
       coalesce(min((select min(r.position) from penstock_replays r where r.subscription_id = s.id)), 9223372036854775807)
  from penstock_subscriptions s
 where s.outbox_id = ?

select s.id, s.name, s.position, s.settled, s.rate, s.rate_at, s.holder, s.epoch, s.lease_until,
       (select count(*) from penstock_dead_letters d where d.subscription_id = s.id and d.retry is null),
       (select count(*) from penstock_dead_letters d where d.subscription_id = s.id and d.retry is not null),
       (select coalesce(min(d.created_at), 0) from penstock_dead_letters d where d.subscription_id = s.id and d.retry is not null)
  from penstock_subscriptions s
 where s.outbox_id = ?
 order by s.name

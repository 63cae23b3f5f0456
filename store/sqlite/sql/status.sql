select s.id, s.name, s.position, s.ahead, s.settled, s.rate, s.rate_at, s.holder, s.holder_since, s.epoch, s.lease_until,
       (select count(*) from penstock_dead_letters d where d.subscription_id = s.id),
       (select count(*) from penstock_parked_keys k join penstock_parked p on p.key_id = k.id where k.subscription_id = s.id),
       (select count(*) from penstock_parked_keys k where k.subscription_id = s.id),
       (select count(*) from penstock_parked_keys k where k.subscription_id = s.id and k.due is null),
       exists (select 1 from penstock_replays r where r.subscription_id = s.id),
       case when s.sink_epoch = s.epoch then s.sink_down else 0 end, s.sink_error
  from penstock_subscriptions s
 where s.outbox_id = ?
 order by s.name

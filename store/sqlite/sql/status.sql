select s.id, s.name, s.position, s.ahead, s.settled, s.rate, s.rate_at, s.holder, s.holder_since, s.epoch, s.lease_until,
       (select count(*) from (select 1 from penstock_dead_letters d where d.subscription_id = s.id limit :most)),
       (select count(*) from (select 1 from penstock_parked_keys l join penstock_parked p on p.key_id = l.id where l.subscription_id = s.id limit :most)),
       (select count(*) from (select 1 from penstock_parked_keys l where l.subscription_id = s.id limit :most)),
       (select count(*) from (select 1 from penstock_parked_keys l where l.subscription_id = s.id and l.due is null limit :most)),
       coalesce((select min(p.created_at) from (select l.id, l.head from penstock_parked_keys l where l.subscription_id = s.id limit :most) l
                   join penstock_parked p on p.key_id = l.id and p.seq = l.head), 0),
       exists (select 1 from penstock_replays r where r.subscription_id = s.id),
       case when s.sink_epoch = s.epoch then s.sink_down else 0 end, s.sink_error
  from penstock_subscriptions s
 where s.outbox_id = :outbox
 order by s.name

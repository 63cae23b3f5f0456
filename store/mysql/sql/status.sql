select s.id, s.name, s.settled + coalesce((select sum(greatest(p.settled, 0)) from {schema}.progress p where p.subscription_id = s.id), 0),
       coalesce((select sum(greatest(p.settled, 0)) from {schema}.progress p where p.subscription_id = s.id and p.at > utc_timestamp(6) - interval 1 minute), 0) / 60e0,
       s.lease_until > utc_timestamp(6), s.holder, s.holder_since, s.epoch, s.lease_until,
       case when s.sink_epoch = s.epoch then s.sink_down end, s.sink_error,
       (select count(*) from {schema}.entries e where e.subscription_id = s.id and e.state = 2),
       (select count(*) from {schema}.entries e where e.subscription_id = s.id and e.state = 1),
       (select count(*) from {schema}.entries e where e.subscription_id = s.id and e.state = 1 and e.parked_key is null)
       + (select count(distinct coalesce(e.parked_key, e.hold)) from {schema}.entries e where e.subscription_id = s.id and (e.parked_key is not null or e.hold is not null)),
       (select count(distinct e.hold) from {schema}.entries e where e.subscription_id = s.id and e.hold is not null),
       (select min({parked_since}) from {schema}.entries e where e.subscription_id = s.id and e.state = 1),
       exists (select 1 from {schema}.entries e where e.subscription_id = s.id and e.state = 3),
       (select count(*) from {table} t where not exists (select 1 from {schema}.entries e where e.subscription_id = s.id and {entry})),
       (select min({oldest}) from {table} t where not exists (select 1 from {schema}.entries e where e.subscription_id = s.id and {entry})),
       utc_timestamp(6)
  from {schema}.subscriptions s
 where s.outbox_id = {outbox}
 order by s.name

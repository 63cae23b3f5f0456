select s.id, s.name, s.settled + coalesce((select sum(greatest(p.settled, 0)) from {schema}.progress p where p.subscription_id = s.id), 0)::bigint,
       coalesce((select sum(greatest(p.settled, 0)) from {schema}.progress p where p.subscription_id = s.id and p.at > clock_timestamp() - interval '1 minute'), 0)::float8 / 60,
       s.lease_until > clock_timestamp() or m.holders is not null, coalesce(m.holders, s.holder), s.holder_since, s.epoch, coalesce(m.until, s.lease_until),
       case when s.sink_epoch = s.epoch then s.sink_down end, s.sink_error,
       (select count(*) from {schema}.entries e where e.subscription_id * 4 + e.state = s.id * 4 + 2),
       (select count(*) from {schema}.entries e where e.subscription_id * 4 + e.state = s.id * 4 + 1),
       (select count(*) from {schema}.entries e where e.subscription_id * 4 + e.state = s.id * 4 + 1 and e.parked_key is null)
       + (select count(*) from (select e.parked_key from {schema}.entries e where e.subscription_id - 0 = s.id and e.parked_key is not null
                                union select e.hold from {schema}.entries e where e.subscription_id - 0 = s.id and e.hold is not null) k),
       (select count(distinct e.hold) from {schema}.entries e where e.subscription_id - 0 = s.id and e.hold is not null),
       (select min({parked_since}) from {schema}.entries e where e.subscription_id * 4 + e.state = s.id * 4 + 1),
       exists (select from {schema}.entries e where e.subscription_id * 4 + e.state = s.id * 4 + 3),
       b.backlog, b.oldest, clock_timestamp()
  from {schema}.subscriptions s
  cross join lateral (
    select string_agg(h.holder, ', ' order by h.epoch) as holders, max(h.lease_until) as until
      from {schema}.members h
     where h.subscription_id = s.id and h.lease_until > clock_timestamp()) m
  {backlog}
 where s.outbox_id = {outbox}
 order by s.name{collate}

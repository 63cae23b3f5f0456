-- The backlog is counted up to some thousands. From there on it is the distance between two seqs.
with s as materialized (
  select b.*, (select count(*) from (select 1 from {table} t where t.seq > b.position limit 10001)) as behind,
         (select coalesce(sum((a.value ->> 1) - (a.value ->> 0) + 1), 0) from json_each(b.ahead) a) as taken
    from penstock_subscriptions b
   where b.outbox_id = {outbox}
)
select s.id, s.name, s.settled, s.rate * exp(min(s.rate_at - {clock}, 0) / 60000000.0),
       s.lease_until > {clock}, s.holder, s.holder_since, s.epoch, s.lease_until,
       case when s.sink_epoch = s.epoch then s.sink_down end, s.sink_error,
       (select count(*) from (select 1 from penstock_entries e where e.subscription_id = s.id and e.state > 1 and e.state = 2 limit {most})),
       (select count(*) from (select 1 from penstock_entries e where e.subscription_id = s.id and e.parked_key is not null
                             union all
                             select 1 from penstock_entries e where e.subscription_id = s.id and e.head and e.parked_key is null limit {most})),
       (select count(*) from (select 1 from penstock_entries e where e.subscription_id = s.id and e.head limit {most}))
       + (select count(*) from (select distinct w.hold from penstock_entries w
                                 where w.subscription_id = s.id and w.hold is not null
                                   and not exists (select 1 from penstock_entries e where e.subscription_id = s.id and e.parked_key = w.hold) limit {most})),
       (select count(*) from (select distinct w.hold from penstock_entries w where w.subscription_id = s.id and w.hold is not null limit {most})),
       (select min({created}) from (select h.seq from penstock_entries h where h.subscription_id = s.id and h.head limit {most}) h join {table} t on t.seq = h.seq),
       exists (select 1 from penstock_entries e where e.subscription_id = s.id and e.state > 1 and e.state = 3),
       case when s.behind <= 10000
            then s.behind - (select count(*) from json_each(s.ahead) a cross join {table} t where t.seq between a.value ->> 0 and a.value ->> 1)
            else (select max(seq) from {table}) - max(s.position, (select min(seq) from {table}) - 1) - s.taken end,
       (select {created} from {table} t
         where t.seq > s.position and not exists (select 1 from json_each(s.ahead) a where t.seq between a.value ->> 0 and a.value ->> 1)
         order by t.seq limit 1),
       {clock}
  from s
 order by s.name

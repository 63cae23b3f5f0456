-- The migration from version 16 to 17, for one outbox.
insert into {table} (seq, created_at, id, key, topic, headers, payload)
select c.seq, c.created_at, c.id, c.key, c.topic, c.headers, c.payload
  from (select k.subscription_id, p.seq, p.created_at, p.id, p.key, p.topic, p.headers, p.payload from penstock_parked p join penstock_parked_keys k on k.id = p.key_id
        union all
        select d.subscription_id, d.seq, d.created_at, d.id, d.key, d.topic, d.headers, d.payload from penstock_dead_letters d) c
 where c.subscription_id in (select s.id from penstock_subscriptions s join penstock_outboxes o on o.id = s.outbox_id where o.name = :outbox)
    on conflict (seq) do nothing;

insert into penstock_entries (subscription_id, seq, state, parked_key, head, due, hold, attempts, since, failures, died_at)
select c.subscription_id, c.seq, c.state, c.parked_key, c.head, c.due, (select h.key from penstock_holds h where h.subscription_id = c.subscription_id and h.seq = c.seq),
       coalesce(c.history ->> 'attempts', 0), cast(unixepoch(c.history ->> 'since', 'subsec') * 1000000 as integer), c.history -> 'failures', c.died_at
  from (select k.subscription_id, p.seq, 1 as state, case when k.seq = 0 then k.key end as parked_key, p.seq = k.head as head, coalesce(k.due, :now) as due,
               case when json_valid(p.history) then p.history else '{}' end as history, null as died_at
          from penstock_parked p join penstock_parked_keys k on k.id = p.key_id
        union all
        select d.subscription_id, d.seq, 2, null, 0, null, case when json_valid(d.history) then d.history else '{}' end, d.at from penstock_dead_letters d) c
 where c.subscription_id in (select s.id from penstock_subscriptions s join penstock_outboxes o on o.id = s.outbox_id where o.name = :outbox)
    on conflict (subscription_id, seq) do nothing;

insert into penstock_entries (subscription_id, seq, state)
select r.subscription_id, t.seq, 3
  from penstock_replays r
  join {table} t on t.seq > r.position and t.seq <= r.last
 where r.subscription_id in (select s.id from penstock_subscriptions s join penstock_outboxes o on o.id = s.outbox_id where o.name = :outbox)
   and t.created_at >= r.created_from and t.created_at < r.created_to
   and (t.seq <= r.covered or t.seq in (select value from json_each(r.besides)))
   and not exists (select 1 from json_each(r.ahead) a where t.seq between a.value ->> 0 and a.value ->> 1)
   and not exists (select 1 from json_each(r.others) a where t.seq between a.value ->> 0 and a.value ->> 1)
    on conflict (subscription_id, seq) do nothing;

-- Settled messages that have no entry, or that another replay has still to deliver. Parked ones come anyway, and a person decides about dead
-- letters.
insert into penstock_entries (subscription_id, seq, state)
select s.id, t.seq, 3
  from penstock_subscriptions s
 cross join {table} t
 where s.id = {sub}
   and t.seq >= {from_seq} and t.seq <= {to_seq}
   and (t.seq <= s.position
        or exists (select 1 from json_each(s.ahead) a where t.seq between a.value ->> 0 and a.value ->> 1))
   and ({from} is null or {created} >= {from}) and ({to} is null or {created} < {to})
    on conflict (subscription_id, seq) do update set state = 3 where penstock_entries.state = 3

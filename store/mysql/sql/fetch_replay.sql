select 0, t.ts, t.seq, coalesce(t.id, ''), coalesce(t.`key`, ''), t.topic, t.headers, t.payload,
       exists (select 1 from {schema}.entries w force index (entries_parked_key) where w.subscription_id = {sub} and w.parked_key = t.`key`)
       or exists (select 1 from {schema}.entries w force index (entries_hold) where w.subscription_id = {sub} and w.hold = t.`key`)
  from (select e.seq
          from {schema}.entries e
         where e.subscription_id = {sub} and e.state = 3 and e.seq not in ({in_flight})
           and exists (select 1 from {schema}.subscriptions s where s.id = {sub} and s.epoch = {epoch} and s.holder = {holder})
         order by e.ts, e.seq
         limit {most}) p
  join {table} t on t.seq = p.seq
 order by t.ts, t.seq

insert into {schema}.entries (subscription_id, seq, ts, state)
select {sub}, t.seq, t.ts, 0
  from {rows} straight_join {table} t force index (primary) on t.seq = d.seq and t.ts = d.ts
 where exists (select 1 from {schema}.subscriptions s where s.id = {sub} and s.keeps_settled)
   and {allowed}
   and (select e.seq from {schema}.entries e force index (primary) where e.subscription_id = {sub} and e.seq = t.seq) is null

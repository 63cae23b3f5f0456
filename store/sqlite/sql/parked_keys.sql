-- Those due soonest first. A held one waits for a dead letter, or for one on its way back.
select k.key, case when k.counted is null then 1 else (select count(*) from penstock_entries c where c.subscription_id = {sub} and c.parked_key = k.counted) end,
       k.first, e.attempts, e.since, e.failures, k.due, k.held
  from (select cast(coalesce(t.key, '') as text) as key, h.parked_key as counted, h.seq as first, h.due, 0 as held
          from penstock_entries h
          join {table} t on t.seq = h.seq
         where h.subscription_id = {sub} and h.head
           and not (h.parked_key is not null and exists (select 1 from penstock_entries w where w.subscription_id = {sub} and w.hold = h.parked_key))
        union all
        select w.hold, w.hold, min(w.seq), null, 1
          from penstock_entries w
         where w.subscription_id = {sub} and w.hold is not null
         group by w.hold) k
  join penstock_entries e on e.subscription_id = {sub} and e.seq = k.first
 order by k.held, k.due, k.first
 limit {most}

select k.key, k.messages, k.first, e.attempts, e.since, e.failures, k.due, k.held
  from (select h.key, case when h.parked_key is null then 1 else (select count(*) from {schema}.entries c where c.subscription_id - 0 = {sub} and c.parked_key = h.parked_key) end as messages,
               h.seq as first, h.due, false as held
          from {schema}.entries h
         where h.subscription_id - 0 = {sub} and h.head
           and not (h.parked_key is not null and exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.hold = h.parked_key))
        union all
        select w.hold, (select count(*) from {schema}.entries c where c.subscription_id - 0 = {sub} and c.parked_key = w.hold), min(w.seq), null, true
          from {schema}.entries w
         where w.subscription_id - 0 = {sub} and w.hold is not null
         group by w.hold) k
  join {schema}.entries e on e.subscription_id = {sub} and e.seq = k.first
 order by k.held, k.due, k.first
 limit {most}

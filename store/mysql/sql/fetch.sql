-- The first that have no entry, are behind the low-water mark and not in flight. A number may come again where the last that was committed was lost: messages in
-- flight are also known by their time.
select 0, m.ts, m.seq, m.id, m.`key`, m.topic, m.headers, m.payload, m.behind
  from (select t.ts, t.seq, coalesce(t.id, '') as id, coalesce(t.`key`, '') as `key`, t.topic, t.headers, t.payload{more_t},
               exists (select 1 from {schema}.entries w force index (entries_parked_key) where w.subscription_id = {sub} and w.parked_key = t.`key`)
               or exists (select 1 from {schema}.entries w force index (entries_hold) where w.subscription_id = {sub} and w.hold = t.`key`) as behind,
               sum(octet_length(t.payload) + 160) over (order by {order_t}) - octet_length(t.payload) - 160 as before_it
          from (select t.seq, t.ts{more_t}
                  from {by_place}
                 where {beyond}
                   and (select e.seq from {schema}.entries e force index ({entries}) where e.subscription_id = {sub} and {entry}) is null
                   and {landed}
                 order by {order_t}
                 limit {most}) p
          straight_join {by_id} on {same_p}
         where {sub} = 0 or exists (select 1 from {schema}.subscriptions s where s.id = {sub} and s.epoch = {epoch} and s.holder = {holder})) m
 where m.before_it <= {bytes}
 order by {order_m}

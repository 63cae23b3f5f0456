-- The parked keys, those due soonest first, held ones last.
--   $1 subscription, $2 limit
select coalesce(case when l.parked_key like 'k%' then substr(l.parked_key, 2) end, h.key, d.key, ''), c.messages, coalesce(l.held, h.seq, 0),
       coalesce(d.attempt, l.attempt), coalesce(d.failures, l.failures), coalesce(d.failed_since, l.failed_since),
       nullif(l.due, 'infinity'), l.held is not null
  from {schema}._parked_key l
 cross join lateral (select count(*) as messages from {schema}._parked m
                      where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head) c
  left join lateral (select m.seq, m.key from {schema}._parked m
                      where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head order by m.p limit 1) h on true
  left join {schema}._dead_letter d on d.subscription = $1 and d.seq = l.held
 where l.subscription = $1 and l.head is not null
   and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key)
 order by l.due, l.n limit $2

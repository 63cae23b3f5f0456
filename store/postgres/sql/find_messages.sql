-- Messages wherever they are, with what became of them for one subscription, the newest first: of a seq, or among the
-- latest of an id or a key.
--   $1 subscription, $2 seq or null, $3 id or null, $4 key or null, $5 limit
--   $6 done, $7 upto, $8 pos, $9 ahead   what its cursor covers; done is null if that cannot be told
with ring as materialized (
    (select e.* from {outbox} e where e.seq = $2::bigint)
    union all
    (select e.* from (select e.* from {outbox} e where $2::bigint is null order by e.seq desc limit 20000) e
      where e.id = $3::text or e.key = $4::text limit $5::bigint)
), parked as materialized (
    select m.seq, m.created_at, m.id, m.key, m.topic, m.headers, m.payload, m.p = l.head as first, l.attempt, l.failures, l.due
      from {schema}._parked_key l
     cross join lateral (select * from {schema}._parked m where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head order by m.p limit 20000) m
     where l.subscription = $1::bigint and l.head is not null and ($4 is null or l.parked_key = 'k' || $4)
       and not exists (select from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key and x.n > l.n)
       and (m.seq = $2 or m.id = $3 or m.key = $4)
     limit $5
), dead as materialized (
    (select d.* from {schema}._dead_letter d where d.subscription = $1 and d.seq = $2)
    union all
    (select d.* from (select d.* from {schema}._dead_letter d where $2 is null and d.subscription = $1 order by d.seq desc limit 20000) d
      where d.id = $3 or d.key = $4 limit $5)
)
select * from (
    select seq, created_at, id, key, topic, headers, payload, 'parked' as state, case when first then attempt else 0 end as attempt,
           case when first then failures end as failures, nullif(due, 'infinity') as due, null::timestamptz as died_at
      from parked
    union all
    select seq, created_at, id, key, topic, headers, payload, case when retry then 'sent back' else 'dead' end, attempt, failures, null, died_at from dead
    union all
    select seq, created_at, id, key, topic, headers, payload,
           case when $6::pg_snapshot is null then 'written'
                when pg_visible_in_snapshot(xid, $6::pg_snapshot) or pg_visible_in_snapshot(xid, $7::pg_snapshot) and seq <= $8::bigint
                     or seq <@ $9::int8multirange then 'settled' else 'waiting' end, 0, null, null, null
      from ring where seq not in (select seq from parked) and seq not in (select seq from dead)
) found
 order by seq desc limit $5

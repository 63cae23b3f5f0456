-- Messages wherever they are, with what became of them for one subscription, the newest first: of a seq, or among the
-- latest of an id or a key. Which ones to show is chosen first, from all places, then the state of exactly these is read:
-- what is cut from one place is not taken for settled.
--   $1 subscription, $2 seq or null, $3 id or null, $4 key or null, $5 limit
--   $6 done, $7 upto, $8 pos, $9 ahead   what its cursor covers; done is null if that cannot be told
with ring as materialized (
    (select e.* from {outbox} e where e.seq = $2::bigint)
    union all
    (select e.* from (select e.* from {outbox} e where $2::bigint is null order by e.seq desc limit 20000) e
      where e.id = $3::text or e.key = $4::text order by e.seq desc limit $5::bigint)
), line as materialized ( -- the parked keys in which they may be; a message of a key may be parked alone
    select l.*, exists (select from {schema}._parked m where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head offset 20000) as long
      from {schema}._parked_key l
     where l.subscription = $1::bigint and l.head is not null and ($4 is null or l.parked_key = 'k' || $4 or l.parked_key between 's' and 't')
       and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key)
), parked as materialized ( -- all of them, without what makes them large
    select m.seq, m.p, l.parked_key
      from line l
     cross join lateral (select m.seq, m.p, m.id, m.key from {schema}._parked m
                          where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head order by m.p desc limit 20000) m
     where m.seq = $2 or m.id = $3 or m.key = $4
), dead as materialized (
    select d.seq from (select d.* from {schema}._dead_letter d where $2 is null and d.subscription = $1 order by d.seq desc limit 20000) d
     where d.id = $3 or d.key = $4 order by d.seq desc limit $5
), chosen as materialized (
    select seq from (select seq from ring union select seq from parked union select seq from dead union select $2) c
     where seq is not null order by seq desc limit $5
), its_dead as materialized (
    select d.* from chosen c join {schema}._dead_letter d on d.subscription = $1 and d.seq = c.seq
)
select * from (
    select m.seq, m.created_at, m.id, m.key, m.topic, m.headers, m.payload, 'parked' as state, case when m.p = l.head then l.attempt else 0 end as attempt,
           case when m.p = l.head then l.failures end as failures, nullif(l.due, 'infinity') as due, null::timestamptz as died_at
      from chosen c
      join parked on parked.seq = c.seq
      join line l on l.parked_key = parked.parked_key
      join {schema}._parked m on m.subscription = $1 and m.parked_key = parked.parked_key and m.p = parked.p
    union all
    select seq, created_at, id, key, topic, headers, payload, case when retry then 'sent back' else 'dead' end, attempt, failures, null, died_at from its_dead
    union all
    select seq, created_at, id, key, topic, headers, payload,
           case when $6::pg_snapshot is null then 'written'
                when not (pg_visible_in_snapshot(xid, $6::pg_snapshot) or pg_visible_in_snapshot(xid, $7::pg_snapshot) and seq <= $8::bigint
                     or seq <@ $9::int8multirange) then 'waiting'
                when exists (select from line where long) then 'written' -- it may be parked further ahead than was looked
                else 'settled' end, 0, null, null, null
      from ring
     where seq in (select seq from chosen) and seq not in (select seq from parked) and seq not in (select seq from its_dead)
) found
 order by seq desc limit $5

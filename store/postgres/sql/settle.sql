-- Moves the cursor, unless the lease is lost, together with everything else that
-- became of the settled messages: all or nothing.
--   $1 ... $16   as in write_cursor.sql
--   $17 ... $27  dead letters to keep; $28 dead letters to delete
--   $29 seqs, $30 parked keys   messages of the outbox to park, in order
--   $31 seqs, $32 parked keys   dead letters to park; they follow in order
--   $33 ... $40  parked keys that changed; see outbox_parked.go
--   $41 due    up to here parked keys have been read
--   $42 ids, $43 pos      replays, with how far they have come; $44 what is settled ahead; $45 they are over
-- Returns the state of each parked key that changed, and whether it is due earlier than what was read: then the clock was set back.
with moved as materialized (
    select {schema}._write_cursor($1::bigint, $2::bigint, $3::text, $4::bigint, $5::pg_snapshot, $6::bigint,
                                  $7::pg_snapshot, $8::bigint, $9::bigint, $10::bigint, $11::bigint, $12::timestamptz, $13::bigint, $14::int, $16::int8multirange) as n
     where pg_backend_pid() = $15::int
), dead as (
    insert into {schema}._dead_letter (subscription, seq, id, key, topic, headers, payload, created_at, attempt, failures, failed_since, held)
    select $1::bigint, d.seq, d.id, d.key, d.topic, d.headers, d.payload, d.created_at, d.attempt, d.failures, d.failed_since,
           d.held or exists (select from {schema}._parked_key l
                              where l.subscription = $1::bigint and l.parked_key = 'k' || d.key and l.held = d.seq
                                and not exists (select from {schema}._parked_key x where x.subscription = $1::bigint and x.parked_key = l.parked_key and x.n > l.n))
      from unnest($17::bigint[], $18::text[], $19::text[], $20::text[], $21::jsonb[], $22::bytea[], $23::timestamptz[],
                  $24::int[], $25::jsonb[], $26::timestamptz[], $27::boolean[])
           d(seq, id, key, topic, headers, payload, created_at, attempt, failures, failed_since, held)
     where (select n from moved) is not null
    on conflict (subscription, seq) do update
       set attempt = excluded.attempt, failures = excluded.failures, failed_since = excluded.failed_since,
           held = _dead_letter.held or excluded.held, died_at = clock_timestamp(), retry = false
), revived as (
    delete from {schema}._dead_letter
     where subscription = $1::bigint and seq = any ($28::bigint[]) and (select n from moved) is not null
), base as materialized (
    select nextval('{schema}._parked_p') as p where (select n from moved) is not null
), parked as (
    insert into {schema}._parked (subscription, parked_key, p, seq, created_at, id, key, topic, headers, payload)
    select $1::bigint, a.parked_key, base.p + a.ord, m.seq, m.created_at, m.id, m.key, m.topic, m.headers, m.payload
      from base
     cross join unnest($29::bigint[], $30::text[]) with ordinality a(seq, parked_key, ord)
     cross join lateral (select * from {outbox} e where e.seq = a.seq order by e.seq limit 1) m
    union all
    select $1::bigint, a.parked_key, base.p + cardinality($29::bigint[]) + a.ord, d.seq, d.created_at, d.id, d.key, d.topic, d.headers, d.payload
      from base
     cross join unnest($31::bigint[], $32::text[]) with ordinality a(seq, parked_key, ord)
      join {schema}._dead_letter d on d.subscription = $1::bigint and d.seq = a.seq
), entered as (
    insert into {schema}._parked_key (subscription, parked_key, head, due, held, attempt, failures, failed_since)
    select $1::bigint, c.parked_key, at.head,
           case when c.held is not null then 'infinity'
                else clock_timestamp() + c.delay_us * interval '1 microsecond' end,
           c.held, was.attempt, was.failures, was.failed_since
      from base
     cross join unnest($33::text[], $34::bigint[], $35::bigint[], $36::bigint[], $37::bigint[], $38::int[], $39::jsonb[], $40::timestamptz[])
                c(parked_key, after, ord, delay_us, held, attempt, failures, failed_since)
      left join lateral (select l.head, l.attempt, l.failures, l.failed_since from {schema}._parked_key l
                          where l.subscription = $1::bigint and l.parked_key = c.parked_key order by l.n desc limit 1) live on true
     cross join lateral (
        select case when c.after is null then coalesce(live.head, base.p + c.ord)
                    else coalesce((select m.p from {schema}._parked m
                                    where m.subscription = $1::bigint and m.parked_key = c.parked_key and m.p > c.after
                                    order by m.p limit 1),
                                  base.p + c.ord, case when c.held is not null then c.after + 1 end) end as head) at
     -- A parked key that is held or released keeps its head, and with it what the head has behind it.
     cross join lateral (
        select live.attempt, live.failures, live.failed_since where at.head = live.head and (c.after is null or c.attempt = 0)
        union all
        select c.attempt, c.failures, c.failed_since where (at.head = live.head and (c.after is null or c.attempt = 0)) is not true) was
     where c.after is not null or c.held is not null or live.head is null
    returning parked_key, head, held, due
), replayed as (
    update {schema}._replay r set pos = greatest(r.pos, a.pos), ahead = a.ahead
      from unnest($42::bigint[], $43::bigint[], $44::text[]::int8multirange[], $45::boolean[]) a(id, pos, ahead, over)
     where r.id = a.id and not a.over and r.subscription = $1::bigint and (select n from moved) is not null
), finished as (
    delete from {schema}._replay r
     using unnest($42::bigint[], $45::boolean[]) a(id, over)
     where r.id = a.id and a.over and r.subscription = $1::bigint and (select n from moved) is not null
)
select n, parked_key, head is not null, held is not null, due < $41::timestamptz from moved left join entered on true

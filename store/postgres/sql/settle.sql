-- Moves the cursor, unless the lease is lost, together with everything else that
-- became of the settled messages: all or nothing.
--   @subscription      whose cursor it is; @cursor: what write_cursor.sql has beside
--   @dead, @dead_...   dead letters to keep; @gone: dead letters to delete. What is the database's own text is no JSON: it may be such
--                      as only an encoding of its own can hold
--   @parked_...        messages of the outbox to park, in order
--   @parked_dead_...   dead letters to park; they follow in order
--   @keys, @states     parked keys that changed; see outbox_parked.go
--   @due               up to here parked keys have been read
--   @replays           replays, with how far they have come; what is settled ahead; they are over
-- Returns the state of each parked key that changed, and whether it is due earlier than what was read: then the clock was set back.
with moved as materialized (
    select {schema}._write_cursor(@subscription::bigint, c.epoch, c.holder, c.lease_us, c.done, c.low, c.upto, c.upto_low, c.pos, c.settled, c.system, c.since, c.n, c.timeline, c.ahead) as n
      from jsonb_to_record(@cursor::jsonb) c(epoch bigint, holder text, lease_us bigint, done pg_snapshot, low bigint, upto pg_snapshot, upto_low bigint, pos bigint,
                                             settled bigint, system bigint, since timestamptz, n bigint, timeline int, pid int, ahead int8multirange)
     where pg_backend_pid() = c.pid
), dead as (
    insert into {schema}._dead_letter (subscription, seq, id, key, topic, headers, payload, created_at, attempt, failures, failed_since, held)
    select @subscription::bigint, d.seq, d.id, d.key, d.topic, d.headers, d.payload, d.created_at, d.attempt, d.failures, d.failed_since,
           d.held or exists (select from {schema}._parked_key l
                              where l.subscription = @subscription::bigint and l.parked_key = 'k' || d.key and l.held = d.seq
                                and not exists (select from {schema}._parked_key x where x.subscription = @subscription::bigint and x.parked_key = l.parked_key and x.n > l.n))
      from rows from (unnest(@dead_ids::text[], @dead_keys::text[], @dead_topics::text[], @dead_headers::jsonb[], @dead_payloads::bytea[], @dead_created_at::timestamptz[]),
                      jsonb_to_recordset(@dead::jsonb) as (seq bigint, attempt int, failures jsonb, since timestamptz, held boolean))
           d(id, key, topic, headers, payload, created_at, seq, attempt, failures, failed_since, held)
     where (select n from moved) is not null
    on conflict (subscription, seq) do update
       set attempt = excluded.attempt, failures = excluded.failures, failed_since = excluded.failed_since,
           held = _dead_letter.held or excluded.held, died_at = clock_timestamp(), retry = false
), revived as (
    delete from {schema}._dead_letter
     where subscription = @subscription::bigint and seq = any (@gone::bigint[]) and (select n from moved) is not null
), base as materialized (
    select nextval('{schema}._parked_p') as p where (select n from moved) is not null
), parked as (
    insert into {schema}._parked (subscription, parked_key, p, seq, created_at, id, key, topic, headers, payload)
    select @subscription::bigint, a.parked_key, base.p + a.ord, m.seq, m.created_at, m.id, m.key, m.topic, m.headers, m.payload
      from base
     cross join unnest(@parked_seqs::bigint[], @parked_names::text[]) with ordinality a(seq, parked_key, ord)
     cross join lateral (select * from {outbox} e where e.seq = a.seq order by e.seq limit 1) m
    union all
    select @subscription::bigint, a.parked_key, base.p + cardinality(@parked_seqs::bigint[]) + a.ord, d.seq, d.created_at, d.id, d.key, d.topic, d.headers, d.payload
      from base
     cross join unnest(@parked_dead_seqs::bigint[], @parked_dead_names::text[]) with ordinality a(seq, parked_key, ord)
      join {schema}._dead_letter d on d.subscription = @subscription::bigint and d.seq = a.seq
), entered as (
    insert into {schema}._parked_key (subscription, parked_key, head, due, held, attempt, failures, failed_since)
    select @subscription::bigint, c.parked_key, at.head,
           case when c.held is not null then 'infinity'
                else clock_timestamp() + c.delay_us * interval '1 microsecond' end,
           c.held, was.attempt, was.failures, was.failed_since
      from base
     cross join rows from (unnest(@keys::text[]), jsonb_to_recordset(@states::jsonb) as (
                               after bigint, ord bigint, delay_us bigint, held bigint, attempt int, failures jsonb, since timestamptz))
                c(parked_key, after, ord, delay_us, held, attempt, failures, failed_since)
      left join lateral (select l.head, l.attempt, l.failures, l.failed_since from {schema}._parked_key l
                          where l.subscription = @subscription::bigint and l.parked_key = c.parked_key order by l.n desc limit 1) live on true
     cross join lateral (
        select case when c.after is null then coalesce(live.head, base.p + c.ord)
                    else coalesce((select m.p from {schema}._parked m
                                    where m.subscription = @subscription::bigint and m.parked_key = c.parked_key and m.p > c.after
                                    order by m.p limit 1),
                                  base.p + c.ord, case when c.held is not null then c.after + 1 end) end as head) at
     -- A parked key that is held or released keeps its head, and with it what the head has behind it.
     cross join lateral (
        select live.attempt, live.failures, live.failed_since where at.head = live.head and (c.after is null or c.failures = '[]')
        union all
        select c.attempt, c.failures, c.failed_since where (at.head = live.head and (c.after is null or c.failures = '[]')) is not true) was
     where c.after is not null or c.held is not null or live.head is null
    returning parked_key, head, held, due
), replayed as (
    update {schema}._replay r set pos = greatest(r.pos, a.pos),
           ahead = (r.ahead + a.ahead) - int8multirange(int8range(null, greatest(r.pos, a.pos), '[]'))
      from jsonb_to_recordset(@replays::jsonb) a(id bigint, pos bigint, ahead int8multirange, over boolean)
     where r.id = a.id and not a.over and r.subscription = @subscription::bigint and (select n from moved) is not null
), finished as (
    delete from {schema}._replay r
     using jsonb_to_recordset(@replays::jsonb) a(id bigint, over boolean)
     where r.id = a.id and a.over and r.subscription = @subscription::bigint and (select n from moved) is not null
)
select n, parked_key, head is not null, held is not null, due < @due::timestamptz from moved left join entered on true

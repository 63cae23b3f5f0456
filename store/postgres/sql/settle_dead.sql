-- The same with the dead letters of the settled batches, all or nothing.
with moved as (
    insert into {schema}._cursor (subscription, epoch, holder, lease_until, done, low, upto, upto_low, pos, settled, system)
    select $1::bigint, $2::bigint, $3::text, clock_timestamp() + $4::bigint * interval '1 microsecond',
           $5::pg_snapshot, $6::bigint, $7::pg_snapshot, $8::bigint, $9::bigint, $10::bigint, $11::bigint
     where not exists (select from {schema}._cursor where subscription = $1 and epoch > $2)
   and exists (select from {schema}._subscription where id = $1)
    returning 1
), buried as (
    insert into {schema}._dead_letter (subscription, seq, id, key, topic, headers, payload, created_at, attempt, error)
    select $1, d.* from unnest($12::bigint[], $13::text[], $14::text[], $15::text[], $16::jsonb[], $17::bytea[], $18::timestamptz[], $19::int[], $20::text[]) d
     where exists (select from moved)
    on conflict (subscription, seq) do update
       set attempt = excluded.attempt, error = excluded.error, died_at = clock_timestamp(), retry = false
), revived as (
    delete from {schema}._dead_letter
     where subscription = $1 and seq = any ($21::bigint[]) and exists (select from moved)
)
select count(*) from moved

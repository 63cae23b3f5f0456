-- The same with the dead letters of the settled batches, all or nothing.
with moved as materialized (
    select {schema}._write_cursor($1::bigint, $2::bigint, $3::text, $4::bigint, $5::pg_snapshot, $6::bigint,
                                  $7::pg_snapshot, $8::bigint, $9::bigint, $10::bigint, $11::bigint) as ok
), buried as (
    insert into {schema}._dead_letter (subscription, seq, id, key, topic, headers, payload, created_at, attempt, error)
    select $1, d.* from unnest($12::bigint[], $13::text[], $14::text[], $15::text[], $16::jsonb[], $17::bytea[], $18::timestamptz[], $19::int[], $20::text[]) d
     where (select ok from moved)
    on conflict (subscription, seq) do update
       set attempt = excluded.attempt, error = excluded.error, died_at = clock_timestamp(), retry = false
), revived as (
    delete from {schema}._dead_letter
     where subscription = $1 and seq = any ($21::bigint[]) and (select ok from moved)
)
select ok from moved

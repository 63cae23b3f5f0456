-- The table and the statements of "Scaling the Outbox Pattern" (Milan Jovanović,
-- 2024), rung by rung.

-- name: create
create table {schema}.{table} (
    id               uuid primary key,
    type             text not null,
    content          jsonb not null,
    occurred_on_utc  timestamptz not null,
    processed_on_utc timestamptz,
    error            text
);

-- name: drop
drop table if exists {schema}.{table};

-- Ids as random as those of the published program. jsonb puts the shortest name
-- first, so a content begins with its number.
-- name: fill
insert into {schema}.{table} (id, type, content, occurred_on_utc)
select md5(n::text)::uuid, 'OrderCreated', jsonb_build_object('n', n, 'order', repeat('x', $3::int)),
       now() - make_interval(secs => 0.001 * ($2::int - n))
  from generate_series($1::int, $2::int) n;

-- The same messages in an outbox of Penstock's.
-- name: fill_outbox
insert into {schema}.{outbox} (topic, payload)
select 'OrderCreated', convert_to(jsonb_build_object('n', n, 'order', repeat('x', $3::int))::text, 'UTF8')
  from generate_series($1::int, $2::int) n;

-- name: index
create index on {schema}.{table} (occurred_on_utc, processed_on_utc) include (id, type, content)
 where processed_on_utc is null;

-- So that the index alone answers, and plans are good from the first batch on.
-- name: filled
vacuum (analyze) {schema}.{table};

-- name: query_all
select * from {schema}.{table} where processed_on_utc is null order by occurred_on_utc limit {batch};

-- name: query
select id, type, content from {schema}.{table} where processed_on_utc is null order by occurred_on_utc limit {batch};

-- name: query_locked
select id, type, content from {schema}.{table} where processed_on_utc is null order by occurred_on_utc limit {batch}
   for update skip locked;

-- name: update_one
update {schema}.{table} set processed_on_utc = now(), error = null where id = $1;

-- name: update_batch
update {schema}.{table} o set processed_on_utc = now(), error = null
  from unnest($1::uuid[]) v (id)
 where o.id = v.id;

-- name: processed
select count(*) from {schema}.{table} where processed_on_utc is not null;

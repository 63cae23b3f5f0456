-- A hand-written queue with leases: a claim says until when a job is taken, its end deletes it.

-- name: create
create table {schema}.{table} (
    id           bigint generated always as identity primary key,
    payload      bytea not null,
    attempts     int not null default 0,
    locked_until timestamptz,
    worker       text
);

-- name: drop
drop table if exists {schema}.{table};

-- name: fill
insert into {schema}.{table} (payload) select $2 from generate_series(1, $1::int);

-- name: filled
vacuum (analyze) {schema}.{table};

-- name: claim
update {schema}.{table}
   set locked_until = now() + interval '5 minutes', attempts = attempts + 1, worker = 'bench'
 where id in (select id from {schema}.{table} where locked_until is null or locked_until < now() order by id for update skip locked limit $1::int)
returning id, payload;

-- name: drain
update {schema}.{table}
   set locked_until = now() + interval '5 minutes', attempts = attempts + 1, worker = 'bench'
 where id in (select id from {schema}.{table} where locked_until is null or locked_until < now() order by id for update skip locked limit 100)
returning id, payload;

-- name: ack
delete from {schema}.{table} where id = any ($1::bigint[]) returning id;

-- Claimed jobs count as gone.
-- name: rest
select count(*) from {schema}.{table} where locked_until is null;

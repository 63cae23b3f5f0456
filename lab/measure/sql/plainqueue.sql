-- The queue that one writes by hand: a table, and one statement to take from it.

-- name: create
create table {schema}.{table} (id bigint generated always as identity primary key, payload bytea not null);

-- name: drop
drop table if exists {schema}.{table};

-- name: fill
insert into {schema}.{table} (payload) select $2 from generate_series(1, $1::int);

-- name: filled
vacuum (analyze) {schema}.{table};

-- name: enqueue
insert into {schema}.{table} (payload) values ($1);

-- name: take
delete from {schema}.{table} t
 using (select id from {schema}.{table} order by id for update skip locked limit $1::int) x
 where t.id = x.id
returning t.id, t.payload;

-- name: drain
delete from {schema}.{table}
 where id in (select id from {schema}.{table} order by id for update skip locked limit 100)
returning id, payload;

-- name: rest
select count(*) from {schema}.{table};

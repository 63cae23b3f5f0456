-- The events of "The Curious Case of the Ever-Increasing Tombstones" (Premkumar
-- Thangamani, YugabyteDB, 2022), and the same as jobs of a queue. Vacuum stays
-- away: what is measured is how it is until it comes, which on the published store
-- is compaction.

-- name: create
create table {schema}.{table} (id int primary key, ts timestamp, data text) with (autovacuum_enabled = false);

-- name: index
create index on {schema}.{table} (ts);

-- name: drop
drop table if exists {schema}.{table};

-- name: fill
insert into {schema}.{table} (id, ts, data)
select n, timestamp '2021-02-25 08:16:00' + make_interval(mins => n), 'eventdata-' || n from generate_series($1::int, $2::int) n;

-- name: filled
vacuum (analyze) {schema}.{table};

-- name: last
select l.ts, l.ts::text from (select coalesce(max(ts), '-infinity') as ts from {schema}.{table} where id <= $1::int) l;

-- name: naive
select * from {schema}.{table} order by ts limit 1;

-- name: last_ts
select * from {schema}.{table} where ts > $1::timestamp order by ts limit 1;

-- name: delete_first
delete from {schema}.{table} where id <= $1::int;

-- name: fill_queue
insert into {schema}.{queue} (payload)
select convert_to('eventdata-' || n, 'UTF8') from generate_series($1::int, $2::int) n;

-- name: next
select id, payload from {schema}.dequeue({queue_name});

-- name: take
select count(*) from {schema}.dequeue({queue_name}, $1::int);

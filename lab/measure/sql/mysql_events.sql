-- events.sql in MySQL: the events, and the same as jobs of a queue and as messages of an outbox.

-- name: create
create table {schema}.{table} (id int primary key, ts datetime(6), data text) {engine};

-- name: index
create index ts on {schema}.{table} (ts);

-- name: drop
drop table if exists {schema}.{table};

-- name: fill
insert into {schema}.{table} (id, ts, data)
select ? + n.n - 1, timestamp '2021-02-25 08:16:00' + interval ? + n.n - 1 minute, concat('eventdata-', ? + n.n - 1)
  from json_table(concat('[', repeat('0,', ? - 1), '0]'), '$[*]' columns (n for ordinality)) n;

-- name: last
select date_format(coalesce(max(ts), timestamp '1970-01-01 00:00:00'), '%Y-%m-%d %H:%i:%s.%f') from {schema}.{table} where id <= ?;

-- name: naive
select id from {schema}.{table} force index (ts) order by ts limit 1;

-- name: last_ts
select id from {schema}.{table} force index (ts) where ts > ? order by ts limit 1;

-- name: delete_first
delete from {schema}.{table} where id <= ?;

-- name: delete_scattered
delete from {schema}.{table} where id > ? and id % 2 = 1;

-- With the events' times, a minute apart, as they were published: within the margin there is one.
-- name: fill_queue
insert into {schema}.{queue} (created_at, payload) select timestamp '2021-02-25 08:16:00' + interval ? + n.n - 1 minute, concat('eventdata-', ? + n.n - 1)
  from json_table(concat('[', repeat('0,', ? - 1), '0]'), '$[*]' columns (n for ordinality)) n;

-- name: fill_outbox
insert into {schema}.{outbox} (ts, payload) select timestamp '2021-02-25 08:16:00' + interval ? + n.n - 1 minute, concat('eventdata-', ? + n.n - 1)
  from json_table(concat('[', repeat('0,', ? - 1), '0]'), '$[*]' columns (n for ordinality)) n;

-- name: delete_scattered_jobs
delete from {schema}.{queue} where seq > ? and seq % 2 = 0;

-- name: delete_scattered_messages
delete from {schema}.{outbox} where seq > ? and seq % 2 = 0;

-- What this session has walked over so far that was deleted: with rocksdb_perf_context_level at 2.
-- name: tombstones
select coalesce(sum(value), 0) from information_schema.rocksdb_perf_context_global where stat_type = 'INTERNAL_DELETE_SKIPPED_COUNT';

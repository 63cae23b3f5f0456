-- churn.sql in MySQL.

-- name: create
create table {schema}.{table} (
    ts      datetime(6) not null default current_timestamp(6),
    id      bigint not null auto_increment,
    message text,
    primary key (ts, id),
    key (id)
) {engine};

-- name: drop
drop table if exists {schema}.{table};

-- name: insert
insert into {schema}.{table} (message) select 'Hello World' from json_table(concat('[', repeat('0,', {batch} - 1), '0]'), '$[*]' columns (n for ordinality)) n;

-- name: insert_late
insert into {schema}.{table} (message) values ('late');

-- name: consume
delete from {schema}.{table} where ts > ? order by ts limit {batch} returning ts;

-- name: rest
select count(*) from {schema}.{table};

-- name: rest_late
select count(*) from {schema}.{table} where message = 'late';

-- name: size
select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = {schema_name} and table_name = {name};

-- name: insert_outbox
insert into {schema}.{table} (payload) select 'Hello World' from json_table(concat('[', repeat('0,', {batch} - 1), '0]'), '$[*]' columns (n for ordinality)) n;

-- name: insert_late_outbox
insert into {schema}.{table} (payload) values ('late');

-- name: size_portable
select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = {schema_name} and table_name in ({name}, 'entries', 'progress');

-- jobqueue.sql in MySQL, where the rows of InnoDB and of MyRocks lie in the order of the primary key, as
-- published.

-- name: create
create table {schema}.{table} (
    account_id int not null,
    id         bigint not null auto_increment,
    payload    longtext,
    primary key (account_id, id),
    key (id)
) {engine};

-- name: drop
drop table if exists {schema}.{table};

-- name: fill
insert into {schema}.{table} (account_id, payload) select 0, p.payload
  from json_table(concat('[', repeat('0,', ? - 1), '0]'), '$[*]' columns (n for ordinality)) n, (select convert(? using utf8mb4) as payload) p;

-- name: enqueue
insert into {schema}.{table} (account_id, payload) values (0, convert(? using utf8mb4));

-- name: select
select id from {schema}.{table}
 where account_id = 0
 order by account_id {direction}, id {direction}
 limit 1 for update skip locked;

-- name: delete
delete from {schema}.{table} where account_id = 0 and id = ?;

-- name: rest
select count(*) from {schema}.{table};

-- As far as it has left memory, in MyRocks.
-- name: size
select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = {schema_name} and table_name = {name};

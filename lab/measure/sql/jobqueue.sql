-- The hand-written queue as published: Franck Pachot, "Deletes and MVCC in
-- YugabyteDB". There the rows lie in the order of the primary key;
-- PostgreSQL has to be told to follow it, hence the order by.

-- name: create
create table {schema}.{table} (
    account_id int,
    id         bigint generated always as identity,
    payload    text,
    primary key (account_id, id)
);

-- PostgreSQL takes no order in a primary key: LIFO reads the index backwards.
-- name: drop
drop table if exists {schema}.{table};

-- name: fill
insert into {schema}.{table} (account_id, payload) select 0, convert_from($2, 'UTF8') from generate_series(1, $1::int);

-- name: filled
vacuum (analyze) {schema}.{table};

-- name: enqueue
insert into {schema}.{table} (account_id, payload) values (0, convert_from($1, 'UTF8'));

-- name: select
select account_id, id, payload from {schema}.{table}
 where account_id = 0
 order by account_id {direction}, id {direction}
   for update skip locked limit 1;

-- name: delete
delete from {schema}.{table} where account_id = $1 and id = $2;

-- name: rest
select count(*) from {schema}.{table};

-- name: size
select pg_total_relation_size({table_name}::regclass);

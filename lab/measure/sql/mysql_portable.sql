-- portable.sql in MySQL.

-- name: fill
insert into {schema}.{table} (payload) select p.payload
  from json_table(concat('[', repeat('0,', ? - 1), '0]'), '$[*]' columns (n for ordinality)) n, (select ? as payload) p;

-- name: enqueue
insert into {schema}.{table} (payload) values (?);

-- name: rest
select count(*) from {schema}.{table};

-- name: size
select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = {schema_name} and table_name in ({name}, 'leases', 'tries');

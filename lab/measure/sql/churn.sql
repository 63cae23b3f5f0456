-- The table and the loop of "YugabyteDB avoids bloat with the outbox pattern" (Franck
-- Pachot, 2024).

-- name: create
create table {schema}.{table} (
    primary key (ts, id),
    ts      timestamptz default now(),
    id      bigserial,
    message text
);

-- name: drop
drop table if exists {schema}.{table};

-- name: insert
insert into {schema}.{table} (message) select 'Hello World' from generate_series(1, {batch});

-- name: insert_late
insert into {schema}.{table} (message) values ('late');

-- As published, plans are made for each statement, and do not depend on statistics.
-- There the table is its primary key; here it could be read past the index.
-- name: settings
set enable_mergejoin = off;
set enable_hashjoin = off;
set enable_seqscan = off;
set plan_cache_mode = force_custom_plan;

-- In the published statement the condition is on id alone. PostgreSQL has no index
-- for that and would read the whole table; this is the whole key.
-- name: consume
with deleted as (
    delete from {schema}.{table} where (ts, id) in (
        select ts, id from {schema}.{table}
         where ts > $1::timestamptz
         order by ts limit {batch})
    returning ts)
select coalesce(max(ts), timestamptz '1970-01-01') - make_interval(secs => {margin}), count(*) from deleted;

-- name: rest
select count(*) from {schema}.{table};

-- name: rest_late
select count(*) from {schema}.{table} where message = 'late';

-- name: size
select pg_total_relation_size({table_name}::regclass);

-- What Penstock keeps about tables that it has adopted.
-- name: size_adopted
select pg_total_relation_size({table_name}::regclass) + coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
  from pg_class
 where relnamespace = {schema_name}::regnamespace and relkind = 'r' and relname ~ '^_adopt';

-- name: insert_outbox
insert into {schema}.{table} (payload) select 'Hello World' from generate_series(1, {batch});

-- name: insert_late_outbox
insert into {schema}.{table} (payload) values ('late');

-- With the cursor, which all outboxes share.
-- name: size_outbox
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
  from pg_class
 where relnamespace = {schema_name}::regnamespace and relkind = 'r'
   and (oid in (select inhrelid from pg_inherits where inhparent = {table_name}::regclass) or relname ~ '^_cursor');

-- In the portable profile, with what all outboxes share.
-- name: size_portable
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
  from pg_class
 where oid in ({table_name}::regclass, ({schema_name} || '.entries')::regclass, ({schema_name} || '.progress')::regclass);

-- A plain table with the columns and defaults of an outbox or a queue, and a primary key.

-- name: create
create table {schema}.{table} (like {schema}.{of} including defaults, primary key (seq));

-- name: drop
drop table if exists {schema}.{table};

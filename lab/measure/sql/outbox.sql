-- An outbox of Penstock's, and statements that are the same for the table it is compared with.

-- name: create
select {schema}.create_outbox({name});

-- name: drop
select {schema}.drop_outbox({name});

-- name: insert_many
insert into {schema}.{table} (key, topic, payload) select 'customer', 'order.placed', unnest($1::bytea[]);

-- name: insert_one
insert into {schema}.{table} (key, topic, payload) values ('customer', 'order.placed', ($1::bytea[])[1]);

-- name: publish
insert into {schema}.{table} (key, topic, payload) values ('customer', 'order.placed', $1::bytea);

-- name: rest
select count(*) from {schema}.{table};

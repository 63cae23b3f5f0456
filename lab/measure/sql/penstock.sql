-- A queue of Penstock's. $1 of fill: jobs; $2 of fill, $1 of enqueue: the payload.

-- name: create
select {schema}.create_queue({name}, {order});

-- name: drop
select {schema}.drop_queue({name});

-- name: fill
insert into {schema}.{table} (payload) select $2 from generate_series(1, $1::int);

-- As for the hand-written one, though Penstock does not need it: what is read first would have
-- its hint bits written otherwise.
-- name: filled
vacuum (analyze) {schema}.{table};

-- name: enqueue
insert into {schema}.{table} (payload) values ($1);

-- name: dequeue
select id, payload from {schema}.{dequeue}();

-- name: maintain
select {schema}.maintain_queue({name});

-- name: rest
select count(*) from {schema}.{table};

-- The tables that all queues share included, for marks and leases.
-- name: size
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
  from pg_class
 where relnamespace = {schema_name}::regnamespace and relkind = 'r'
   and (oid in (select inhrelid from pg_inherits where inhparent = {table_name}::regclass)
        or relname ~ '^_(skip_map|lease|scheduled|segment)');

-- A segment that is truncated gets another file.
-- name: files
select array_agg(c.relfilenode::bigint)
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where i.inhparent = {table_name}::regclass;

-- name: insert_many
insert into {schema}.{table} (payload) select unnest($1::bytea[]);

-- name: insert_one
insert into {schema}.{table} (payload) values (($1::bytea[])[1]);

-- name: enqueue_one
select {schema}.{own_enqueue}(($1::bytea[])[1], null, '', 0, null, null, null);

-- name: enqueue_many
select {schema}.{own_enqueue_many}($1::bytea[], null, null, null, null, null, null);

-- name: take
select coalesce(id, seq), payload from {schema}.{own_take}($1::int, '');

-- name: claim
select lease, id, payload from {schema}.{own_claim}($1::int, interval '5 minutes', '', '');

-- As a worker claims that ends them with one call.
-- name: claim_many
select lease, id, payload from {schema}.{own_claim}($1::int, interval '5 minutes', '', '', array[]::bigint[]);

-- As a worker claims that has ended the jobs of its last claim.
-- name: ack_claim
select lease, id, payload from {schema}.{own_claim}($1::int, interval '5 minutes', '', '', $2::bigint[]);

-- name: ack
select {schema}.{own_ack}($1::bigint[]);

-- A queue of Penstock's in the portable profile, which Go claims from. $1 of fill: jobs; $2 of fill, $1 of enqueue: the payload.

-- name: fill
insert into {schema}.{table} (payload) select $2 from generate_series(1, $1::int);

-- name: filled
vacuum (analyze) {schema}.{table};

-- name: enqueue
insert into {schema}.{table} (payload) values ($1);

-- name: rest
select count(*) from {schema}.{table};

-- With what all queues share.
-- name: size
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint
  from pg_class
 where oid in ({table_name}::regclass, ({schema_name} || '.leases')::regclass, ({schema_name} || '.tries')::regclass);

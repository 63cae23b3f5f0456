-- At the end of the queue: their place is the time of now.
insert into {table} (seq, group_key, priority, created_at, not_before, key, headers, payload)
select d.seq, d.group_key, d.priority, d.created_at, greatest($3, d.created_at), d.key, d.headers, d.payload
  from {schema}.dead_jobs d
 where d.queue_id = $1 and d.seq = any ($2::bigint[])

-- How many rows wait for delivery, up to a limit, and the age of the oldest of them in
-- microseconds.
--   $1 limit
select count(*), coalesce(extract(epoch from clock_timestamp() - min(s.at)) * 1000000, 0)::bigint
  from (select {at} as at from {table} t where {pending} limit $1) s

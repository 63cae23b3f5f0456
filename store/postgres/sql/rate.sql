-- Messages settled per second over the last minute, from the cursor log, whose rows count them. An
-- older row than a minute, or the first, is where to count from.
--   $1 subscription, $2 count now
select coalesce(greatest($2::bigint - settled, 0) / greatest(extract(epoch from clock_timestamp() - at), 1), 0)::float8
  from (values (1)) one
  left join lateral (
    select settled, at
      from (select settled, at from {schema}._cursor
             where subscription = $1 order by epoch desc, n desc limit 2000) recent
     where at >= clock_timestamp() - interval '1 minute'
     order by at limit 1) past on true

insert into {schema}.held (inbox_id, id, previous, key, at, due, headers, payload)
select $1, $2, $3, $4, c.now, c.now + $5 * interval '1 microsecond', $6, $7
  from (select clock_timestamp() as now) c

insert into {schema}.held (inbox_id, id, previous, key, at, due, headers, payload)
select {inbox}, {id}, {previous}, {key}, c.now, c.now + {wait} * interval '1 microsecond', {headers}, {payload}
  from (select clock_timestamp() as now) c

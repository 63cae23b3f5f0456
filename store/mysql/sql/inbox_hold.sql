insert into {schema}.held (inbox_id, id, previous, `key`, at, due, headers, payload)
values ({inbox}, {id}, {previous}, {key}, utc_timestamp(6), utc_timestamp(6) + interval {wait} microsecond, {headers}, {payload})

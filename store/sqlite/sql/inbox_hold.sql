insert into {schema}.held (inbox_id, id, previous, key, at, due, headers, payload)
values ({inbox}, {id}, {previous}, {key}, {clock}, {clock} + {wait}, {headers}, {payload})

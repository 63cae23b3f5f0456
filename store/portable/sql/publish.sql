insert into {table} (id, key, topic, headers, payload)
select * from unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::bytea[])

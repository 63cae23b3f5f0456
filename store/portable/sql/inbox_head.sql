insert into {schema}.key_heads as k (inbox_id, key, id, at)
values ({inbox}, {key}, {id}, clock_timestamp())
    on conflict (inbox_id, key) do update set id = excluded.id, at = excluded.at

insert into {schema}.key_heads as k (inbox_id, key, id, behind, at)
values ({inbox}, {key}, {id}, {behind}, clock_timestamp())
    on conflict (inbox_id, key) do update set id = excluded.id, behind = excluded.behind, at = excluded.at

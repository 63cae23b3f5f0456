insert into {schema}.key_heads (inbox_id, key, id, behind, at) values ({inbox}, {key}, {id}, {behind}, {clock})
on conflict (inbox_id, key) do update set id = excluded.id, behind = excluded.behind, at = excluded.at

insert into {schema}.gaps as g (inbox_id, id, key, next, discarded, at)
values ({inbox}, {id}, {key}, {next}, {discarded}, clock_timestamp())
    on conflict (inbox_id, id) do update
   set next = coalesce(g.next, excluded.next), discarded = g.discarded or excluded.discarded,
       at = case when excluded.discarded then excluded.at else g.at end

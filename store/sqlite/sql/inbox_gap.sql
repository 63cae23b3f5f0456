insert into {schema}.gaps (inbox_id, id, key, next, discarded, at) values ({inbox}, {id}, {key}, {next}, {discarded}, {clock})
on conflict do update set next = coalesce(next, excluded.next), discarded = max(discarded, excluded.discarded),
                          at = case when excluded.discarded then excluded.at else at end

insert into {schema}.gaps (inbox_id, id, `key`, next, discarded, at)
values ({inbox}, {id}, {key}, {next}, {discarded}, utc_timestamp(6))
    on duplicate key update next = coalesce(next, values(next)), discarded = discarded or values(discarded),
       at = case when values(discarded) then values(at) else at end

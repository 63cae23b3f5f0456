insert into {schema}.key_heads (inbox_id, key_hash, id, behind, at) values ({inbox}, unhex(sha2({key}, 256)), {id}, {behind}, utc_timestamp(6))
    on duplicate key update id = values(id), behind = values(behind), at = values(at)

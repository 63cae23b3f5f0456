insert into {schema}.key_heads (inbox_id, key_hash, id, at) values ({inbox}, unhex(sha2({key}, 256)), {id}, utc_timestamp(6))
    on duplicate key update id = values(id), at = values(at)

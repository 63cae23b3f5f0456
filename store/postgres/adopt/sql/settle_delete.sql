delete from {table} t using unnest({arrays}) x ({xs}) where {same}

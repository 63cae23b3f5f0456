update {table} t set {delivered} from unnest({arrays}) x ({xs}) where {same}

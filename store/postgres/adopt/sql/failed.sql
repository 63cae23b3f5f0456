-- The last error and the number of attempts of rows that are out of band.
--   $1... one array of texts per column of the key, then errors and attempts
update {table} t set {failed} from unnest({arrays}, {errors}) x ({xs}, error, attempts) where {same}

-- The content of rows that are known by their keys; those that are gone or settled by
-- someone else are not among them.
--   $1... one array of texts per column of the key
select {wide} from unnest({arrays}) x ({xs}) join {table} t on {same} where {pending}{lock}

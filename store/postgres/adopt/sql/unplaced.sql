-- Rows that have no place in the order, because a column of it is NULL.
--   $1 limit
select {narrow} from {table} t where {pending} and ({isnull}) limit $1

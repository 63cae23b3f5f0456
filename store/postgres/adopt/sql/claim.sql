-- The next rows that no other worker has claimed.
--   $1 limit, $2... the values that the rows come after
select null, {wide} from {table} t where {pending}{after} order by {order} limit $1 for update of t skip locked

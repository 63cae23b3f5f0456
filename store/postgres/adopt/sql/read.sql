-- The next rows in order, behind a row with the statement's snapshot.
--   $1 limit, $2... the values that the rows come after
select pg_current_snapshot()::text{nulls}
union all
(select null, {wide} from {table} t where {pending}{after} order by {order} limit $1)

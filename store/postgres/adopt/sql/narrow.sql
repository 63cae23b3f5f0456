-- Which rows there are in a range, without their content.
--   $1 limit, $2... the values that they come after, and then those that they do not come after
select {narrow} from {table} t where {pending}{after}{upto} order by {order} limit $1

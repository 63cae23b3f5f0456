-- The transaction has the lease locked, and its own row in progress. To ask for these here would be another round trip to the workers.
delete from {table} t
 where {there}

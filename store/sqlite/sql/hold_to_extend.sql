-- Found by their numbers: the + keeps SQLite from going through all leases of the queue. A lease whose time is over settles nothing, though it may be
-- there still.
select lease from penstock_leases where {lease in leases} and +queue_id = {queue} and +until > {clock}

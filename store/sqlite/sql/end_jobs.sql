-- What there is of a job besides goes with its row, and the next one of its key is ready.
delete from {jobs} where seq in (select seq from penstock_leases where {lease in leases} and +queue_id = {queue} and +until > {clock})

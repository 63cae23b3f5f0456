-- Leases that are about to end, but not by their holders.
insert into {schema}.attempts (attempt, given_up)
select -lease, true from {schema}.leases force index (primary) where queue_id = {queue} and {seq in seqs}

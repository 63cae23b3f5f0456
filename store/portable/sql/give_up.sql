-- Leases that are about to end, but not by their holders.
insert into {schema}.attempts (attempt, given_up)
select -lease, true from {schema}.leases where queue_id - {queue} = 0 and {seq in seqs}

-- Jobs that were delayed before they began may run now.
update {jobs} set not_before = greatest(clock_timestamp(), created_at) where ts > clock_timestamp() and {seq in seqs}

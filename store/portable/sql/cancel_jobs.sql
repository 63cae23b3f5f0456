delete from {jobs} where {seq in seqs}

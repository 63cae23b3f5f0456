select seq from {jobs} where {seq in seqs}

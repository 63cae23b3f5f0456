select l.seq from {schema}.leases l where {l.seq in seqs}

select t.seq from {jobs} t where {t.key in keys} and t.key <> '' and {t.seq in seqs} order by t.seq for update of t

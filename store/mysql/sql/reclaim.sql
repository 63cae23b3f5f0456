delete {table} from {these_seqs} straight_join {table} force index (primary) on {table}.seq = d.seq

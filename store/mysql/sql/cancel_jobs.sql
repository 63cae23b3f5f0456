delete {jobs} from {these_seqs} straight_join {jobs} force index (primary) on {jobs}.seq = d.seq
 where {jobs}.place <> 127

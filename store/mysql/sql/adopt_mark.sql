update {rows} straight_join {source} r{hint} on {row}
   set {forgiven}
 where {allowed}

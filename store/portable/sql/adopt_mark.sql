update {source} r
   set {forgiven}
  from {rows}
 where {row} and {allowed}

delete r from {rows} straight_join {source} r{hint} on {row}
 where {allowed}

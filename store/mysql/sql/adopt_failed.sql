-- What the user's own columns tell of a failure.
update {rows} straight_join {source} r{hint} on {row}
   set {failed}

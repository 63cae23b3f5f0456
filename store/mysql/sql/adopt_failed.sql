-- The failure as the user's own columns tell it.
update {rows} straight_join {source} r{hint} on {row}
   set {failed}

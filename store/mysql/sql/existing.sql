-- Those that are there. A server that was promoted without the last that was committed may lack some that were read.
select d.seq
  from {rows} straight_join {by_id} on {same_d}

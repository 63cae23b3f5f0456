-- Those that are there. A server that was promoted without the last that was committed may lack some that were read.
select d.seq
  from {rows}
  join {table} t on {same_d}

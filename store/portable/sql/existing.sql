-- Those that are there. A server that was promoted without the last that was committed may lack some that were read.
select d.seq
  from {rows}
 where (select 1 from {table} t where {same_d}) is not null

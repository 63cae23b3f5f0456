select t.seq
  from {table} t
 where {there}

-- Those that are there. A server that was promoted without the last that was committed may lack some that were read.
select t.seq
  from {placed} straight_join {table} t force index (primary) on t.seq = d.seq and t.ts = d.ts

-- Messages committed behind a position. One writer at a time draws and commits its seqs before the
-- next one begins, so nothing can appear at or before a position that was read.
select {message}{waits}
  from {table} t
 where t.seq > {after}
 order by t.seq
 limit {most}

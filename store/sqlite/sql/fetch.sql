-- Messages committed behind a position. One writer at a time draws and commits its seqs before the
-- next one begins, so nothing can appear at or before a position that was read.
select seq, created_at, coalesce(id, ''), coalesce(key, ''), topic, coalesce(headers, ''), payload
  from {table}
 where seq > ?
 order by seq
 limit ?

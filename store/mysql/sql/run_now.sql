-- Jobs that were delayed before they began may run now. A dead letter keeps its row, at the place 127.
update {these_seqs} straight_join {jobs} t force index (primary) on t.seq = d.seq
   set t.not_before = greatest(utc_timestamp(6), t.created_at), t.ts = greatest(utc_timestamp(6), t.created_at)
 where t.ts > utc_timestamp(6) and t.place <> 127

-- At the end of the queue: their place is the time of now.
update {jobs} t join {schema}.dead_jobs d on d.queue_id = {queue} and d.seq = t.seq
   set t.place = {sign}d.priority, t.ts = greatest(utc_timestamp(6), t.created_at), t.not_before = greatest(utc_timestamp(6), t.created_at), t.`key` = nullif(d.`key`, '')
 where {t.seq in seqs}

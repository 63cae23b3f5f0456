-- The dead letters that a query chooses. Those that were sent back are not among them.
--   $1 subscription, $2 seqs, $3 ids, $4 key, $5 topic, $6 error, $7 died before, $8 died after, $9 after seq, $10 limit
select row_id, parked_key, seq, message_id, key, topic, attempt, failures, failed_since, died_at, held
  from {schema}._adopt_row
 where subscription = $1 and died_at is not null and not retry
   and (coalesce(cardinality($2::bigint[]), 0) = 0 or seq = any ($2)) and (coalesce(cardinality($3::text[]), 0) = 0 or message_id = any ($3))
   and ($4::text is null or key = $4) and ($5::text is null or topic = $5)
   and ($6::text is null or strpos(failures -> -1 ->> 'error', $6) > 0)
   and ($7::timestamptz is null or died_at < $7) and ($8::timestamptz is null or died_at > $8)
   and seq > $9::bigint
 order by seq limit $10::bigint

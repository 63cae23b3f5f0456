-- Dead letters that someone asked to send again.
select seq, created_at, id, key, topic, headers, payload, attempt, failures, failed_since, died_at, held
  from {schema}._dead_letter
 where subscription = $1 and retry and seq <> all ($2::bigint[])
 order by seq limit $3

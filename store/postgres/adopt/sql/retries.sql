-- Dead letters that someone sends again.
--   $1 subscription, $2 limit
select row_id, seq, parked_key, attempt, failures, failed_since, true
  from {schema}._adopt_row
 where subscription = $1 and retry
 order by seq limit $2

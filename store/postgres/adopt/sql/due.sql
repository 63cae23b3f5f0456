-- Parked rows whose time has come.
--   $1 subscription, $2 those due after this, $3 limit
select row_id, seq, parked_key, attempt, failures, failed_since, out_of_order
  from {schema}._adopt_row
 where subscription = $1 and due > $2 and due <= statement_timestamp()
 order by due, seq limit $3

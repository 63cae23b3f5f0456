-- Makes parked rows due that wait for another attempt.
--   $1 subscription, $2 keys, none: all
update {schema}._adopt_row set due = clock_timestamp()
 where subscription = $1 and due > clock_timestamp() and died_at is null and (coalesce(cardinality($2::text[]), 0) = 0 or key = any ($2))

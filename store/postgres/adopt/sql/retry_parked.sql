-- Makes parked rows due that wait for another attempt.
--   $1 subscription, $2 keys, null: all
update {schema}._adopt_row set due = clock_timestamp()
 where subscription = $1 and due > clock_timestamp() and died_at is null and ($2::text[] is null or key = any ($2))

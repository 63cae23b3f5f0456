-- Rows that are no longer out of band.
--   $1 subscription, $2 row ids
delete from {schema}._adopt_row where subscription = $1 and row_id = any ($2::text[])

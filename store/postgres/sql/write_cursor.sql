-- Moves the cursor and extends the lease, unless the lease is lost.
select {schema}._write_cursor($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

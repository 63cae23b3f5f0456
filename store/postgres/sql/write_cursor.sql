-- Moves the cursor and extends the lease, unless the lease is lost. No row at all: the
-- statement did not come to the session's own server process, $15.
select {schema}._write_cursor($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $16)
 where pg_backend_pid() = $15

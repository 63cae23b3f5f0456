-- Writes the state. A holder of '' has given the lease back.
--   $1 subscription, $2 epoch, $3 holder, $4 lease in microseconds, $5 since (null: now), $6 settled, $7 ordered by, $8 low,
--   $9 is it one of several workers, $10 since when the sink takes nothing (null: it does), $11 why
insert into {schema}._adopt_log (subscription, epoch, holder, lease_until, since, settled, ordered_by, low, workers, sink_down, sink_error)
values ($1, $2, $3, clock_timestamp() + $4::bigint * interval '1 microsecond', coalesce($5::timestamptz, clock_timestamp()), $6, $7, $8, $9, $10, $11)
returning since, n

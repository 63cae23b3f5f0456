-- Moves the cursor and extends the lease, unless a later epoch exists or the
-- subscription was dropped.
insert into {schema}._cursor (subscription, epoch, holder, lease_until, done, low, upto, upto_low, pos, settled, system)
select $1::bigint, $2::bigint, $3::text, clock_timestamp() + $4::bigint * interval '1 microsecond',
       $5::pg_snapshot, $6::bigint, $7::pg_snapshot, $8::bigint, $9::bigint, $10::bigint, $11::bigint
 where not exists (select from {schema}._cursor where subscription = $1 and epoch > $2)
   and exists (select from {schema}._subscription where id = $1)

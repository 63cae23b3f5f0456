-- Asks the holder of the lease to give up a parked message: the head of a key that waits for another attempt.
--   $1 subscription, $2 seq, $3 reason
insert into {schema}._retry (subscription, parked_key, n, reason)
select $1::bigint, l.parked_key, l.head, $3::text
  from {schema}._parked_key l
  join {schema}._parked m on m.subscription = l.subscription and m.parked_key = l.parked_key and m.p = l.head
 where l.subscription = $1::bigint and l.head is not null and l.due > clock_timestamp() and l.due < 'infinity' and m.seq = $2::bigint
   and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1::bigint and x.parked_key = l.parked_key)
    on conflict (subscription, parked_key) do update set n = excluded.n, reason = excluded.reason

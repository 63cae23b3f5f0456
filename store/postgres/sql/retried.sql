-- Parked keys that wait for another attempt and must be tried at once: see _retry.
--   $1 subscription, $2 parked keys, {""} among them for all, $3 n of each, $4 limit
select l.parked_key, l.head
  from {schema}._parked_key l
 where l.subscription = $1::bigint and l.head is not null and l.due > statement_timestamp() and l.due < 'infinity'
   and exists (select from unnest($2::text[], $3::bigint[]) r(parked_key, n) where r.parked_key in ('', l.parked_key) and l.n <= r.n)
   and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1::bigint and x.parked_key = l.parked_key)
 order by l.due, l.n limit $4

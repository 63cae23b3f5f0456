-- Messages that an operator has given up: see _retry. Those that are the heads of their keys no more were delivered or have died.
--   $1 subscription, $2 limit
select r.parked_key, r.n, r.reason, l.head is not distinct from r.n, coalesce(l.due > statement_timestamp() and l.due < 'infinity', false), coalesce(l.attempt, 0), l.failures, l.failed_since
  from {schema}._retry r
  left join lateral (select * from {schema}._parked_key x where x.subscription = $1::bigint and x.parked_key = r.parked_key order by x.n desc limit 1) l on true
 where r.subscription = $1::bigint and r.reason is not null
 limit $2::bigint

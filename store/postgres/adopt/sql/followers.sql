-- The first parked rows of parked keys, in order.
--   $1 subscription, $2 parked keys, $3 how many of each
select f.row_id, f.seq, f.parked_key, f.attempt, f.failures, f.failed_since, false, false
  from unnest($2::text[]) with ordinality l (parked_key, n)
 cross join lateral (
        select * from {schema}._adopt_row r
         where r.subscription = $1 and r.parked_key = l.parked_key and r.died_at is null and not r.out_of_order
         order by r.subscription, r.parked_key, r.seq limit $3) f

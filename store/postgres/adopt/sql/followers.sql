-- The first parked rows of lines, in order.
--   $1 subscription, $2 lines, $3 how many of each
select f.row_id, f.seq, f.line, f.attempt, f.failures, f.failed_since, false, false
  from unnest($2::text[]) with ordinality l (line, n)
 cross join lateral (
        select * from {schema}._adopt_row r
         where r.subscription = $1 and r.line = l.line and r.died_at is null and not r.alone
         order by r.subscription, r.line, r.seq limit $3) f

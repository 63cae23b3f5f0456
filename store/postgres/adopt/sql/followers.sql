-- The parked rows behind the first ones of parked keys, in order, up to one that was refused: that one comes by itself.
--   $1 subscription, $2 parked keys, $3 the numbers of their first rows, $4 how many of each
select f.row_id, f.seq, f.parked_key, f.attempt, f.failures, f.failed_since, false
  from unnest($2::text[], $3::bigint[]) with ordinality l (parked_key, seq, n)
 cross join lateral (
        select r.*, max(r.attempt) over (order by r.seq) as refused
          from (select * from {schema}._adopt_row x
                 where x.subscription = $1 and x.parked_key = l.parked_key and x.seq > l.seq and x.died_at is null and not x.out_of_order
                 order by x.subscription, x.parked_key, x.seq limit $4) r) f
 where f.refused = 0
   and not exists (select from {schema}._adopt_row e where e.subscription = $1 and e.parked_key = l.parked_key and e.seq < l.seq and e.died_at is null and not e.out_of_order)
 order by l.n, f.seq

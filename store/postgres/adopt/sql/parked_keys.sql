-- The parked keys, those due soonest first, held ones last: the key, how many wait, and the row
-- that they wait for.
--   $1 subscription, $2 limit
with parked_key as (
    select case when r.out_of_order then 's' || r.row_id else r.parked_key end as parked_key, count(*) filter (where r.died_at is null) as messages,
           bool_or(r.held) as held, min(r.seq) filter (where r.died_at is null) as first, min(r.seq) filter (where r.held) as holder
      from {schema}._adopt_row r
     where r.subscription = $1 and (r.died_at is null or r.held)
     group by 1
)
select h.key, l.messages, h.seq, h.attempt, h.failures, h.failed_since, case when not l.held then coalesce(h.due, statement_timestamp()) end, l.held
  from parked_key l
  join {schema}._adopt_row h on h.subscription = $1 and h.seq = coalesce(l.holder, l.first)
   and case when h.out_of_order then 's' || h.row_id else h.parked_key end = l.parked_key
 order by l.held, h.due, h.seq limit $2

-- Which of these rows are out of band, and which of these keys have to wait.
--   $1 subscription, $2 row ids, $3 parked keys
select row_id, null from {schema}._adopt_row where subscription = $1 and row_id = any ($2::text[])
union all
select null, l.parked_key from unnest($3::text[]) l (parked_key)
 where exists (select from {schema}._adopt_row r where r.subscription = $1 and r.parked_key = l.parked_key and (r.held or r.died_at is null and not r.out_of_order))

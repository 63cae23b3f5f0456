-- The ready jobs of a group in the order in which they run, without payloads, and the position of each.
--   $1 queue, $2 group, $3 and $4 the position (priority, seq) after which the list begins, or null; $5 limit
select coalesce(t.id, t.seq), t.key, t.group_key, p, t.attempt, t.created_at, t.headers, null::bytea, t.failures, 'ready', '', null::timestamptz, concat(p, '.', t.seq)
  from (select q.lifo from {schema}._queue q where q.name = $1::text) q
 cross join generate_series(coalesce($3::int, -16), 15) p
 cross join lateral (
    (select * from {queue} t where not q.lifo and t.group_key = $2::text and t.priority = p and t.seq > case when p = $3 then $4 else -9223372036854775808 end order by t.seq limit $5::int)
    union all
    (select * from {queue} t where q.lifo and t.group_key = $2 and t.priority = p and t.seq < case when p = $3 then $4 else 9223372036854775807 end order by t.seq desc limit $5)) t
 limit $5

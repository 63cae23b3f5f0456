-- The delayed jobs of a queue, those due first at first, or the jobs that wait behind another of their key, without payloads, and the
-- position of each.
--   $1 queue, $2 state, $3 and $4 the position (microseconds, id) after which the list begins, or null; $5 limit
select s.id, s.key, s.group_key, s.priority, s.attempt, s.created_at, s.headers, null::bytea, s.failures, $2::text, '', nullif(s.due, 'infinity'),
       concat(case when s.due = 'infinity' then 0 else (extract(epoch from s.due) * 1000000)::bigint end, '.', s.id)
  from {schema}._scheduled s
 where s.queue = (select q.id from {schema}._queue q where q.name = $1::text)
   and s.due >= case $2 when 'delayed' then coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', '-infinity') else 'infinity' end
   and (s.due < 'infinity') = ($2 = 'delayed')
   and ($4::bigint is null or s.id > $4 or s.due > timestamptz 'epoch' + $3 * interval '1 microsecond' and $2 = 'delayed')
 order by s.due, s.id
 limit $5::int

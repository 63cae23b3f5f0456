select g.id, g.key, coalesce(g.next, ''), g.at, g.discarded,
       exists (select from {schema}.received r where r.inbox_id = $1 and r.id = g.id)
  from {schema}.gaps g
 where g.inbox_id = $1 and g.at >= clock_timestamp() - $2 * interval '1 microsecond'
 order by g.at desc
 limit $3

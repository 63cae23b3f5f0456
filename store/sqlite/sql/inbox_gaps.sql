select g.id, g.key, coalesce(g.next, ''), g.at, g.discarded,
       exists (select 1 from {schema}.received r where r.inbox_id = {inbox} and r.id = g.id)
  from {schema}.gaps g
 where g.inbox_id = {inbox} and g.at >= {clock} - {keep}
 order by g.at desc
 limit {most}

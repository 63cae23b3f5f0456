-- Of each of these lines the first is the head, and no other. One that becomes it is due at once,
-- unless it was parked just now.
update {schema}.entries e
   set head = not e.head,
       due = case when e.head or e.seq = any ($3::bigint[]) then e.due else clock_timestamp() end
  from (select l.line, (select f.seq from {schema}.entries f where f.subscription_id = $1 and f.line = l.line order by f.ts, f.seq limit 1) as first
          from unnest($2::text[]) l(line)) f
 where e.subscription_id = $1 and e.line = f.line and (e.head and e.seq <> f.first or e.seq = f.first and not e.head)

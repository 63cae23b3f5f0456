-- Of each of these lines the first is the head, and no other. One that becomes it is due at once,
-- unless it was parked just now.
update {schema}.entries e
   set head = not e.head,
       due = case when e.head or e.seq = any ($3::bigint[]) then e.due else clock_timestamp() end
  from (select l.parked_key, (select f.seq from {schema}.entries f where f.subscription_id = $1 and f.parked_key = l.parked_key order by f.ts, f.seq limit 1) as first
          from unnest($2::text[]) l(parked_key)) f
 where e.subscription_id = $1 and e.parked_key = f.parked_key and (e.head and e.seq <> f.first or e.seq = f.first and not e.head)

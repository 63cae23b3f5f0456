-- Of each of these keys the first is the head, and no other. One that becomes it is due at once,
-- unless it was parked just now.
update {schema}.entries e
   set head = not e.head,
       due = case when e.head or e.seq = any ({fresh}::bigint[]) then e.due else clock_timestamp() end
  from (select l.sub, r.seq
          from (select {sub}::bigint as sub, unnest({keys}::text[]) as parked_key) l
         cross join lateral (
           select f.seq from {schema}.entries f where f.subscription_id - 0 = l.sub and f.parked_key = l.parked_key order by f.ts, f.seq limit 1) f
         cross join lateral (
           select r.seq from {schema}.entries r where r.subscription_id - 0 = l.sub and r.parked_key = l.parked_key and r.head <> (r.seq = f.seq) offset 0) r) h
 where e.subscription_id = any (array[h.sub]) and e.seq = h.seq

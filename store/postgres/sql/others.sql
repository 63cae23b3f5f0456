-- The seqs that are parked or dead letters.
--   $1 subscription, $2 from seq, $3 to seq, 0: all
select coalesce(range_agg(int8range(o.seq, o.seq, '[]')), '{}')::text
  from (select m.seq
          from {schema}._parked_key l
         cross join lateral (select m.seq from {schema}._parked m
                              where m.subscription = $1 and m.parked_key = l.parked_key and m.p >= l.head offset 0) m
         where l.subscription = $1 and l.head is not null
           and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1 and x.parked_key = l.parked_key)
        union all
        select d.seq from {schema}._dead_letter d where d.subscription = $1) o
 where o.seq >= $2 and ($3 = 0 or o.seq <= $3)

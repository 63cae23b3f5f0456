select x.relname, i.indisunique and i.indpred is null, coalesce(a.attname, '')
  from pg_index i
  join pg_class x on x.oid = i.indexrelid
  left join pg_am m on m.oid = x.relam
  cross join unnest(i.indkey::smallint[]) with ordinality k(attnum, n)
  left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0
 where i.indrelid = to_regclass($1) and i.indisvalid and k.n <= i.indnkeyatts
   and coalesce(m.amname, '') not in ('hash', 'gin', 'gist', 'spgist', 'brin') -- which give no order
 order by x.relname, k.n

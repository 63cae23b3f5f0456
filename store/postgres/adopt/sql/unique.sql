-- The columns of each unique index that identifies a row.
--   $1 oid of the table
select array_agg(a.attname::text order by k.n)
  from pg_index i
 cross join lateral unnest(i.indkey::smallint[]) with ordinality k (attnum, n)
  left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0
 where i.indrelid = $1::oid and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and k.n <= i.indnkeyatts
 group by i.indexrelid, i.indisprimary
having count(*) = count(a.attname)
 order by i.indisprimary desc, i.indexrelid

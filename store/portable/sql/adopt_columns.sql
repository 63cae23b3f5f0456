select a.attname, format_type(b.oid, -1), b.typcategory::text, a.attnotnull,
       case when b.typname in ('varchar', 'bpchar') and a.atttypmod > 4 then a.atttypmod - 4 else 0 end
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
  join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
 where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped
 order by a.attnum

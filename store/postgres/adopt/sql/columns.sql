-- The columns of a table: name, type (of a domain, the type under it), category, the
-- limit of a varchar, and what else matters.
--   $1 oid of the table
select a.attname, format_type(coalesce(nullif(t.typbasetype, 0), a.atttypid), null), t.typcategory::text, a.attnotnull,
       case when t.typname = 'varchar' and a.atttypmod > 4 then a.atttypmod - 4 else 0 end, a.attgenerated <> '',
       not has_column_privilege($1::oid, a.attnum, 'select'), not has_column_privilege($1::oid, a.attnum, 'update')
  from pg_attribute a join pg_type t on t.oid = a.atttypid
 where a.attrelid = $1::oid and a.attnum > 0 and not a.attisdropped
 order by a.attnum

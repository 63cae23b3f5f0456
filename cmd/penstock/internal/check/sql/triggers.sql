-- The triggers of table $1 that users made, are enabled and run for each row.
select t.tgname::text,
       t.tgtype,
       pg_get_triggerdef(t.oid, true),
       t.tgfoid::regprocedure::text,
       t.tgqual is not null or coalesce(array_length(string_to_array(nullif(t.tgattr::text, ''), ' '), 1), 0) > 0,
       t.tgconstraint <> 0
  from pg_catalog.pg_trigger t
 where t.tgrelid = $1 and not t.tgisinternal and t.tgenabled <> 'D' and (t.tgtype & 1) = 1
 order by t.tgname

-- The indexes of table $1.
select i.indexrelid,
       n.nspname::text,
       c.relname::text,
       i.indisvalid and i.indisready and i.indislive,
       exists (select from pg_catalog.pg_stat_progress_create_index p where p.index_relid = i.indexrelid),
       i.indisunique and i.indimmediate and i.indpred is null,
       exists (select from pg_catalog.pg_constraint k where k.conindid = i.indexrelid and k.conrelid = i.indrelid)
         or i.indisreplident or i.indisclustered or i.indisunique,
       (string_to_array(i.indkey::text, ' ')::int2[])[1:i.indnkeyatts],
       coalesce((string_to_array(i.indkey::text, ' ')::int2[])[i.indnkeyatts + 1:], '{}'),
       -- what makes one key column differ from another: access method, expression, operator class, collation, direction
       array(select concat_ws(' ', m.amname, pg_get_indexdef(i.indexrelid, k::int, false),
                    split_part(i.indclass::text, ' ', k::int), split_part(i.indcollation::text, ' ', k::int), split_part(i.indoption::text, ' ', k::int))
               from generate_series(1, i.indnkeyatts) k),
       coalesce(pg_get_expr(i.indpred, i.indrelid), ''),
       array(select distinct d.refobjsubid::int2
               from pg_catalog.pg_depend d
              where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = i.indexrelid
                and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = i.indrelid
                and d.refobjsubid > 0),
       pg_relation_size(i.indexrelid),
       c.reltuples::float8,
       coalesce(s.idx_scan, 0)
  from pg_catalog.pg_index i
  join pg_catalog.pg_class c on c.oid = i.indexrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  join pg_catalog.pg_am m on m.oid = c.relam
  left join pg_catalog.pg_stat_all_indexes s on s.indexrelid = i.indexrelid
 where i.indrelid = $1
 order by c.relname

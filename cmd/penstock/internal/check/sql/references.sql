-- The foreign keys that point at table $1, and whether an index finds the rows
-- that point at a given one.
select k.conname::text,
       n.nspname::text,
       c.relname::text,
       array(select a.attname::text
               from unnest(k.conkey) with ordinality as p(attnum, at)
               join pg_catalog.pg_attribute a on a.attrelid = k.conrelid and a.attnum = p.attnum
              order by p.at),
       k.confdeltype::text,
       exists (select from pg_catalog.pg_index i
                where i.indrelid = k.conrelid and i.indisvalid and i.indpred is null
                  and (string_to_array(i.indkey::text, ' ')::int2[])[1:array_length(k.conkey, 1)] @> k.conkey)
  from pg_catalog.pg_constraint k
  join pg_catalog.pg_class c on c.oid = k.conrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where k.contype = 'f' and k.confrelid = $1 and k.conparentid = 0
 order by k.conname

-- The columns of table $1, with the sequence that numbers each.
select a.attnum,
       a.attname::text,
       format_type(coalesce(nullif(t.typbasetype, 0), a.atttypid), null),
       t.typcategory::text,
       a.attnotnull,
       a.attgenerated <> '',
       a.attlen,
       case when t.typname = 'varchar' and a.atttypmod > 4
            then (a.atttypmod - 4) * pg_encoding_max_length(d.encoding) + 4 else 0 end,
       coalesce(s.seqcache, 0)::bigint,
       coalesce(s.seqrelid::regclass::text, ''),
       not has_column_privilege(a.attrelid, a.attnum, 'select'),
       not has_column_privilege(a.attrelid, a.attnum, 'update')
  from pg_catalog.pg_attribute a
  join pg_catalog.pg_type t on t.oid = a.atttypid
  join pg_catalog.pg_database d on d.datname = current_database()
  left join pg_catalog.pg_attrdef f on f.adrelid = a.attrelid and f.adnum = a.attnum
  left join lateral (
       select q.seqrelid, q.seqcache
         from pg_catalog.pg_depend p
         join pg_catalog.pg_sequence q on q.seqrelid = case p.classid
              when 'pg_catalog.pg_class'::regclass then p.objid else p.refobjid end
        where -- an identity column owns its sequence
              (a.attidentity <> '' and p.classid = 'pg_catalog.pg_class'::regclass and p.deptype = 'i'
               and p.refclassid = 'pg_catalog.pg_class'::regclass
               and p.refobjid = a.attrelid and p.refobjsubid = a.attnum)
              -- a default depends on the sequence that it calls
           or (p.classid = 'pg_catalog.pg_attrdef'::regclass and p.objid = f.oid
               and p.refclassid = 'pg_catalog.pg_class'::regclass)
        limit 1) s on true
 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
 order by a.attnum

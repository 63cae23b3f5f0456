-- The parts that queues and outboxes of the schema $1 lack, and the statement that makes each anew, null if none does. It asks the catalogue only, so each role may.
-- Which queues and outboxes there are, their registers say.
with ring as (
    select n.oid as schema, n.nspname, left(substr(c.relname, 2), -5) as name, case right(c.relname, 4) when 'ring' then 'queue' else 'outbox' end as kind
      from pg_namespace n join pg_class c on c.relnamespace = n.oid
     where n.nspname = $1::text and c.relkind = 'S' and c.relname ~ '^_[^_].*\.(ring|slot)$'),
whole as (
    select r.*, p.oid, format('%I.%I', r.nspname, r.name) as quoted, coalesce(greatest(s.last, 1), 1) as last
      from ring r left join pg_class p on p.relnamespace = r.schema and p.relname = r.name and p.relkind = 'p'
     cross join lateral (
        select max(substring(c.relname from '\.([0-9]+)$')::int) as last from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = p.oid) s),
part as ( -- those with indexes
    select w.kind, w.name, w.oid, w.quoted from whole w where w.kind = 'outbox' and w.oid is not null
    union all
    select w.kind, c.relname, c.oid, format('%I.%I', w.nspname, c.relname)
      from whole w join pg_inherits i on i.inhparent = w.oid join pg_class c on c.oid = i.inhrelid where w.kind = 'queue'),
wanted(kind, columns, uniqueness, rows) as (values
    ('outbox', 'seq', '', ''), ('outbox', 'xid, seq', '', ''), ('queue', 'group_key, priority, seq', 'unique ', ''), ('queue', 'xid', '', ''),
    ('queue', 'key, id, seq', '', ' where key is not null'), ('queue', 'id', '', ' where id is not null'))
select format('the index on %s (%s) is missing', p.name, x.columns),
       format('create %sindex on %s (%s)%s', x.uniqueness, p.quoted, x.columns, x.rows)
    || case when x.uniqueness = '' then '' else format($repair$;
            do $do$ begin
                execute (select format('alter table %%s replica identity using index %%I', i.indrelid::regclass, c.relname)
                           from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = %s and i.indisunique and i.indisvalid);
            end $do$ $repair$, p.oid) end
  from part p join wanted x on x.kind = p.kind
 where not exists (
    select from pg_index i where i.indrelid = p.oid and i.indisvalid and i.indisunique >= (x.uniqueness <> '')
       and x.columns = (select string_agg(a.attname, ', ' order by k.n) from unnest(i.indkey::int2[]) with ordinality k(attnum, n) join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum))
union all
select format('the trigger zz_validate of %s is missing or disabled', w.name),
       format('drop trigger if exists zz_validate on %s; select %I._validate_by(%L, %L)', w.quoted, w.nspname, w.name,
              case w.kind when 'outbox' then '_validate_message()' else format('_validate_job(%L)', format('%I.%I', w.nspname, format('_%s.flags', w.name))) end)
  from whole w where w.oid is not null and not exists (select from pg_trigger t where t.tgrelid = w.oid and t.tgname = 'zz_validate' and t.tgenabled = 'A')
union all
select format('the table %s is missing, which only a backup has', t.name), null
  from whole w cross join lateral (
    select w.name where w.oid is null
    union all
    select format('_%s.%s', w.name, s) from generate_series(0, w.last) s
     where w.oid is not null and not exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = w.oid and c.relname = format('_%s.%s', w.name, s))) t(name)
 order by 1

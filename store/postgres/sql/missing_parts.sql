-- The parts that the schema $1, its queues, outboxes and inboxes lack, and the statement that makes each anew, null if none does. It asks the catalogue only, so each
-- role may. Which queues and outboxes there are, their registers say. $2 are the statements that made the indexes of the tables that all share.
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
      from whole w join pg_inherits i on i.inhparent = w.oid join pg_class c on c.oid = i.inhrelid where w.kind = 'queue'
    union all
    select 'inbox', c.relname, c.oid, format('%I.%I', n.nspname, c.relname)
      from pg_namespace n join pg_class c on c.relnamespace = n.oid where n.nspname = $1 and c.relkind = 'r' and c.relname ~ '^__inbox\.[0-9]+\.held\.[0-9]+$'),
wanted(kind, columns, uniqueness, rows) as (values
    ('outbox', 'seq', '', ''), ('outbox', 'xid, seq', '', ''), ('queue', 'group_key, priority, seq', 'unique ', ''), ('queue', 'xid', '', ''),
    ('queue', 'key, id, seq', '', ' where key is not null'), ('queue', 'key, seq', '', ' where key is not null and id is not null'), ('queue', 'id', '', ' where id is not null'), ('inbox', 'previous', '', ''), ('inbox', 'due', '', '')),
there as ( -- with its condition as it is written in a statement
    select i.indrelid, i.indisunique, x.columns, coalesce(regexp_replace(lower(pg_get_expr(i.indpred, i.indrelid)), '::[a-z ]+|[()"]', '', 'g'), '') as condition
      from pg_namespace n join pg_class c on c.relnamespace = n.oid join pg_index i on i.indexrelid = c.oid
     cross join lateral (
        select string_agg(a.attname, ', ' order by k.n) as columns from unnest(i.indkey::int2[]) with ordinality k(attnum, n) join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum) x
     where n.nspname = $1 and i.indisvalid),
shared as (
    select s.text, c.oid, format('%I.%I', $1, m[3]) as quoted, m[1] is not null as uniqueness, m[2] as name, m[3] as relation, m[4] as columns, coalesce(m[5], '') as condition
      from unnest($2::text[]) s(text) cross join regexp_match(s.text, '^create (unique )?index (?:(\w+) )?on (\w+) \(([^)]*)\)(?: where (.*))?$') m
      join pg_class c on c.relname = m[3] join pg_namespace n on n.oid = c.relnamespace and n.nspname = $1)
select format('the index on %s (%s) is missing', p.name, x.columns),
       format('create %sindex on %s (%s)%s', x.uniqueness, p.quoted, x.columns, x.rows)
    || case when x.uniqueness = '' then '' else format($repair$;
            do $do$ begin
                execute (select format('alter table %%s replica identity using index %%I', i.indrelid::regclass, c.relname)
                           from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = %s and i.indisunique and i.indisvalid);
            end $do$ $repair$, p.oid) end
  from part p join wanted x on x.kind = p.kind
 where not exists (select from there i where i.indrelid = p.oid and i.indisunique >= (x.uniqueness <> '') and i.columns = x.columns)
union all
select format('the index on %s (%s) is missing', s.relation, s.columns),
       s.text || case when s.uniqueness then format('; alter table %s replica identity using index %I', s.quoted, s.name) else '' end
  from shared s
 where not exists (select from there i where i.indrelid = s.oid and i.indisunique >= s.uniqueness and i.columns = s.columns
                      and i.condition = regexp_replace(s.condition, '[()]', '', 'g'))
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
union all
select format('the table %s is missing, which only a backup has', t.name), null
  from pg_namespace n join pg_class c on c.relnamespace = n.oid cross join left(c.relname, -5) ring(name) cross join lateral (values (ring.name || '_0'), (ring.name || '_1')) t(name)
 where n.nspname = $1 and c.relkind = 'S' and c.relname ~ '^_[a-z_]+_slot$'
   and not exists (select from pg_class p join pg_inherits i on i.inhparent = p.oid join pg_class x on x.oid = i.inhrelid where p.relnamespace = n.oid and p.relname = ring.name and x.relname = t.name)
 order by 1

-- A database of version 160 becomes what the files of number 253 make. It was the last of development that had other
-- words for things. A database of a later version is brought up by the numbered files.

-- Workers that run meanwhile come to a queue's table first, and so does this.
do $$
declare
    queue regclass;
begin
    for queue in select format('%I.%I', current_schema(), q.name) from _queue q order by q.id loop
        execute format('lock table %s', queue);
    end loop;
end $$;

lock table _later, _mark, _lease, _dead_job, _schedule, _tick;

-- Functions that are gone, or have other arguments or results, those of each queue, too.
drop function if exists _choose(text, text[], text[]), _with_leaves(text), _with_segments(text, text), _for_segments(text, text, text, int), _job_columns(), _slots(text),
    _short_way(text), _newest_way(), _take_function(), _take_branch(), _batch_way(), _short_claim(), _operate_functions(), _upkeep_functions(), _define_jobs(text),
    _work(int, text, bigint[], interval), _fail(int, bigint, interval, text, boolean), _mark_functions(), _look_function(), _reclaim_marks(), _aim(text, int, bigint, smallint[]),
    _tick_if_due(), _tidy(_queue, bigint), _inbox_upkeep_functions(), _retry_dead(int, bigint[]), _discard_dead(int, bigint[]), _count_groups(int, text, int),
    release(text, bigint), release_many(text, bigint[]), _operate(int, text, bigint[]), _operate_on(text, text, bigint[]), bury(text, bigint, text), _part(integer, bigint[]);

drop trigger if exists tick on _tick;

drop function if exists _tick_at_commit();

drop policy if exists operator on _dead_job;

-- What has changed and was granted is put aside: define.sql gives the new one what was granted of ~NAME.
do $$
declare
    made record;
begin
    for made in select p.oid::regprocedure as old, regexp_replace(p.proname, $re$^((_.*\.)?)([a-z_]+)\Z$re$, $re$\1~\3$re$) as kept from pg_proc p
                 where p.pronamespace = quote_ident(current_schema())::regnamespace
                   and (p.proargnames && '{grp,grps,in_grp,in_grps}' or p.proname in ('create_queue', '_adopt_release')
                        or exists (select from _queue q where p.proname = format('_%s.operate', q.name))) loop
        execute format('alter function %s rename to %I', made.old, made.kept);
    end loop;
    for made in select p.oid::regprocedure as old, regexp_replace(p.proname, $re$[.]tick\Z$re$, '.maintain') as name, p.proname ~ $re$[.]look\Z$re$ as gone
                  from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname ~ $re$^_.*[.](tick|look)\Z$re$ loop
        execute format(case when made.gone then 'drop function %s' else 'alter function %s rename to %I' end, made.old, made.name);
    end loop;
end $$;

alter function _reclaim_lines(bigint) rename to _reclaim_parked_keys; -- with its rights

-- The words: group_key (it was grp), _scheduled (_later), skip map (mark), maintenance (tick), parked key (line), fast path (way).
do $$
declare
    made record;
begin
    for made in select * from (values ('_later', '_scheduled', '{_0,_1,_slot}'::text[]), ('_mark', '_skip_map', '{_0,_1,_slot,_n}'), ('_tick', '_maintenance', '{_id_seq}'),
                                      ('_line', '_parked_key', '{_0,_1,_slot,_n}')) t(old, name, parts) loop
        update _pair set name = made.name where name = made.old;
        execute (select string_agg(format('alter table %I rename to %I', made.old || part, made.name || part), '; ') from unnest('{""}' || made.parts) part);
    end loop;
    for made in select a.attrelid::regclass as of, replace(replace(a.attname, 'grp', 'group_key'), 'line', 'parked_key') as name, a.attname as old
                  from pg_attribute a join pg_class c on c.oid = a.attrelid
                 where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind in ('r', 'p', 'c') and a.attname in ('grp', 'line') and not c.relispartition loop
        execute format(case when made.of in ('job'::regclass, 'leased_job'::regclass) then 'alter type %s rename attribute %I to %I' else 'alter table %s rename %I to %I' end,
                       made.of, made.old, made.name);
    end loop;
    for made in select format('%I.%I', current_schema(), format('_%s.%s', q.name, r.old)) as old, format('_%s.%s', q.name, r.name) as name
                  from _queue q, (values ('tick', 'maintained'), ('way', 'fast_path')) r(old, name) loop
        execute format('alter sequence %s rename to %I', made.old, made.name);
    end loop;
    -- Indexes are called as they would be if they were made now.
    for made in select i.indexrelid::regclass as old, n.name
                  from pg_index i join pg_class t on t.oid = i.indrelid join pg_class c on c.oid = i.indexrelid
                 cross join regexp_replace(c.relname, '^_(later|mark|tick|line)_', '_~\1_') a(name)
                 cross join replace(replace(replace(replace(a.name, '_~later_', '_scheduled_'), '_~mark_', '_skip_map_'), '_~tick_', '_maintenance_'), '_~line_', '_parked_key_') b(name)
                 cross join regexp_replace(b.name, $re$_grp_priority_(n|seq)_idx\Z$re$, $re$_group_key_priority_\1_idx$re$) d(name)
                 cross join replace(d.name, '_subscription_line', '_subscription_parked_key') n(name)
                 where t.relnamespace = quote_ident(current_schema())::regnamespace and n.name <> c.relname and octet_length(n.name) <= 63
                   and (t.relname ~ '^_[a-z_]+(_[01])?$' or t.oid in (select h.inhrelid from pg_inherits h, _queue q where h.inhparent = format('%I.%I', current_schema(), q.name)::regclass)) loop
        execute format('alter index %s rename to %I', made.old, made.name);
    end loop;
end $$;

-- A queue has fewer sequences and indexes, and what validates messages and jobs is called so.
alter function _admit_message() rename to _validate_message;

alter function _admit_job() rename to _validate_job;

drop function _admit_by(text, text);

do $$
declare
    made record;
begin
    for made in select format('%I.%I', current_schema(), q.name)::regclass as queue, q.name, q.lifo from _queue q loop
        execute (select string_agg(format('drop sequence %I', format('_%s.%s', made.name, register)), '; ')
                   from unnest('{seen,since,stale}' || case when made.lifo then '{}' else '{top}'::text[] end) register);
        execute format('create sequence %I minvalue 0', format('_%s.seen', made.name));
        perform setval(format('%I', format('_%s.seen', made.name)), 0);
        execute (select string_agg('drop index ' || i.indexrelid::regclass, '; ') from pg_index i where i.indrelid = made.queue);
        execute (select string_agg(format('create index on %1$s (xid); create index on %1$s (key, id, seq) where key is not null; create index on %1$s (id) where id is not null',
                                          h.inhrelid::regclass), '; ') from pg_inherits h where h.inhparent = made.queue);
    end loop;
    for made in select t.tgrelid::regclass as of, pg_get_triggerdef(t.oid) as was from pg_trigger t where t.tgname = 'zz_admit' and t.tgparentid = 0 loop
        execute format('drop trigger zz_admit on %1$s; %2$s; alter table %1$s enable always trigger zz_validate', made.of, replace(made.was, ' zz_admit ', ' zz_validate '));
    end loop;
end $$;

alter table _schedule rename constraint _schedule_grp_check to _schedule_group_key_check;

-- Claims of several jobs.
create type _claimed as (lease bigint, id bigint, created_at timestamptz, attempt integer, headers jsonb, payload bytea, failures jsonb);

alter table _lease
    add column done bit(256),
    add column jobs _claimed[],
    alter column attempt drop not null,
    alter column id drop not null,
    alter column created_at drop not null,
    alter column payload drop not null,
    alter column lease set default (nextval('_lease_n') << 20) | (floor(random() * 524288)::bigint << 1);

alter table _lease alter column jobs set storage external;

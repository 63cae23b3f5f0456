-- A queue's skip map (it was mark) and its maintenance (tick), and the register of its fast path (way).

alter table _mark rename to _skip_map;

alter table _mark_0 rename to _skip_map_0;

alter table _mark_1 rename to _skip_map_1;

alter sequence _mark_slot rename to _skip_map_slot;

alter sequence _mark_n rename to _skip_map_n;

update _pair set name = '_skip_map' where name = '_mark';

drop trigger if exists tick on _tick;

alter table _tick rename to _maintenance;

alter sequence _tick_id_seq rename to _maintenance_id_seq;

alter index _tick_pkey rename to _maintenance_pkey;

do $$
declare
    made record;
begin
    for made in select c.oid::regclass as old, replace(c.relname, '_mark_', '_skip_map_') as name
                  from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid in ('_skip_map'::regclass, '_skip_map_0'::regclass, '_skip_map_1'::regclass) loop
        execute format('alter index %s rename to %I', made.old, made.name);
    end loop;
    for made in select format('%I.%I', current_schema(), format('_%s.%s', q.name, r.old)) as old, format('_%s.%s', q.name, r.name) as name
                  from _queue q, (values ('tick', 'maintained'), ('way', 'fast_path')) r(old, name) loop
        execute format('alter sequence %s rename to %I', made.old, made.name);
    end loop;
    for made in select p.oid::regprocedure as old, regexp_replace(p.proname, $re$[.]tick\Z$re$, '.maintain') as name -- whose grants stay
                  from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname ~ $re$^_.*[.]tick\Z$re$ loop
        execute format('alter function %s rename to %I', made.old, made.name);
    end loop;
end $$;

drop function if exists _mark_functions(), _look_function(), _reclaim_marks(), _aim(text, int, bigint, smallint[]), _tick_if_due(), _tick_at_commit(), _tidy(_queue, bigint),
    _inbox_upkeep_functions();

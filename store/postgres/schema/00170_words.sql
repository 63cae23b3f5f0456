-- The words of the public SQL: group_key (it was grp), _scheduled (_later), and create_queue's ordering (kind).

do $$
declare
    made record;
begin
    -- A function with other arguments or another result is made anew. define.sql gives it what was granted of the old one.
    for made in select p.oid::regprocedure as old, regexp_replace(p.proname, $re$^((_.*\.)?)([a-z_]+)\Z$re$, $re$\1~\3$re$) as kept from pg_proc p
                 where p.pronamespace = quote_ident(current_schema())::regnamespace
                   and (p.proargnames && '{grp,grps,in_grp,in_grps}' or p.proname = 'create_queue') loop
        execute format('alter function %s rename to %I', made.old, made.kept);
    end loop;
    for made in select format('%I.%I', current_schema(), q.name) as queue from _queue q loop
        execute format('alter table %s rename column grp to group_key', made.queue);
    end loop;
    alter table _later rename to _scheduled;
    alter table _later_0 rename to _scheduled_0;
    alter table _later_1 rename to _scheduled_1;
    for made in select i.indexrelid::regclass as old, n.name
                  from pg_index i join pg_class t on t.oid = i.indrelid join pg_class c on c.oid = i.indexrelid
                 cross join regexp_replace(regexp_replace(c.relname, '^_later_', '_scheduled_'), $re$_grp_priority_(n|seq)_idx\Z$re$, $re$_group_key_priority_\1_idx$re$) n(name)
                 where t.relnamespace = quote_ident(current_schema())::regnamespace and n.name <> c.relname and octet_length(n.name) <= 63
                   and (t.relname ~ '^_(mark|scheduled)(_[01])?$' or t.oid in (select h.inhrelid from pg_inherits h, _queue q where h.inhparent = format('%I.%I', current_schema(), q.name)::regclass)) loop
        execute format('alter index %s rename to %I', made.old, made.name);
    end loop;
end $$;

alter sequence _later_slot rename to _scheduled_slot;

update _pair set name = '_scheduled' where name = '_later';

alter table _mark rename column grp to group_key;

alter table _lease rename column grp to group_key;

alter table _scheduled rename column grp to group_key;

alter table _dead_job rename column grp to group_key;

alter table _schedule rename column grp to group_key;

alter table _schedule rename constraint _schedule_grp_check to _schedule_group_key_check;

alter type job rename attribute grp to group_key;

alter type leased_job rename attribute grp to group_key;

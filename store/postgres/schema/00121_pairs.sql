-- Of a ring of two segments the other one is read only while it is listed. Its register holds which
-- one is written to, and 2 more while the other is listed, see functions/pairs.sql.

alter sequence _lease_slot maxvalue 3;

alter sequence _later_slot maxvalue 3;

alter sequence _dedup_slot maxvalue 3;

alter table _lease alter column slot set default (pg_sequence_last_value('_lease_slot') % 2)::smallint;

alter table _later alter column slot set default (pg_sequence_last_value('_later_slot') % 2)::smallint;

alter table _dedup alter column slot set default (pg_sequence_last_value('_dedup_slot') % 2)::smallint;

alter table _pair
    add column if not exists writers text[], -- the virtual transactions that may still commit rows into the other segment; null: nobody has looked
    add column if not exists trouble text;   -- why its maintenance failed last

insert into _pair (name) values ('_lease'), ('_later'), ('_dedup') on conflict do nothing;

do $$
declare
    ring text;
    here bigint;
begin
    foreach ring in array '{_lease,_later,_dedup}'::text[] loop
        here := pg_sequence_last_value(ring || '_slot') % 2;
        if pg_relation_size(ring || '_' || 1 - here) > 0 then
            perform setval(ring || '_slot', here + 2);
        end if;
    end loop;
end $$;

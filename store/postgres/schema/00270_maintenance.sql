-- _maintenance is a ring of two segments, so that a pinned snapshot keeps none of its deleted rows.
drop table _maintenance;

create sequence _maintenance_slot minvalue 0 maxvalue 3;
select setval('_maintenance_slot', 0);
insert into _pair (name) values ('_maintenance');

-- A row makes a queue's maintenance run when the transaction that wrote it commits. Maintenance
-- locks tables until its transaction ends, and a caller's transaction may last long.
create table _maintenance (
    slot  smallint not null default (pg_sequence_last_value('_maintenance_slot') % 2)::smallint,
    queue integer not null,
    until timestamptz -- when the leases of the claim that wrote the row end, see _maintain_at_commit
) partition by list (slot);

do $$
begin
    for slot in 0 .. 1 loop
        execute format('create table _maintenance_%1$s partition of _maintenance for values in (%1$s) with (autovacuum_enabled = false)', slot);
        execute format('alter table _maintenance_%s replica identity full', slot); -- for a publication of all tables
    end loop;
end $$;

-- The rings' partitions. In a database with a publication for all tables, PostgreSQL refuses UPDATE and DELETE on a table
-- without replica identity. A table without another key is identified by the whole row: most such rows are never updated or
-- deleted, or only by hand. Where payloads are deleted it is an index. The whole row would be written to the log once more
-- wherever wal_level is logical. That is 50 % of the cost of a job of 200 bytes there, instead of 5 %. A lease is drawn
-- anew each time, so a number that came twice would stop no job for long; an id is not, and _scheduled has no such index.
do $$
declare
    ring text; -- a name alone: quote_all_identifiers would quote that of a regclass, and the number would stand behind it
    part regclass;
begin
    for ring in select c.relname from pg_class c where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind = 'p' loop
        for slot in 0 .. 1 loop
            execute format('create table %I partition of %I for values in (%s) with (autovacuum_enabled = false%s)', ring || '_' || slot, ring, slot,
                (select ', toast.autovacuum_enabled = false' from pg_attribute a where a.attrelid = format('%I', ring)::regclass and a.attname = 'payload'));
        end loop;
    end loop;
    create unique index _lease_0_lease on _lease_0 (lease);
    create unique index _lease_1_lease on _lease_1 (lease);
    alter table _lease_0 replica identity using index _lease_0_lease;
    alter table _lease_1 replica identity using index _lease_1_lease;
    for part in select c.oid from pg_class c
                 where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind = 'r' and c.relreplident = 'd'
                   and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary) loop
        execute format('alter table %s replica identity full', part);
    end loop;
end $$;

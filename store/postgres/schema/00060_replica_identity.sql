-- In a database with a publication for all tables, PostgreSQL refuses UPDATE and DELETE on a table
-- without replica identity. Where payloads are deleted it is an index, because the whole row would be written
-- to the log once more wherever wal_level is logical: 50 % of what a job of 200 bytes costs there, instead
-- of 5 %. A lease and a seq are drawn anew each time, so that a number that came twice would stop nobody
-- for long; an id is not, and _later has no such index.

drop index _lease_lease_idx;

create unique index _lease_0_lease on _lease_0 (lease);

create unique index _lease_1_lease on _lease_1 (lease);

alter table _lease_0 replica identity using index _lease_0_lease;

alter table _lease_1 replica identity using index _lease_1_lease;

-- Queues' indexes on (grp, priority, seq) become their segments' own, because those of a partitioned table
-- are unique only together with its partition key. What has no key otherwise is identified by the whole
-- row: most of it is updated and deleted by nobody, or only by hand.
do $$
declare
    queue   regclass;
    segment regclass;
begin
    for queue in select format('%I.%I', current_schema(), q.name)::regclass from _queue q loop
        execute (select format('drop index %s', i.indexrelid::regclass) from pg_index i
                  where i.indrelid = queue and pg_get_indexdef(i.indexrelid) like '%(grp, priority, seq)');
        for segment in select i.inhrelid::regclass from pg_inherits i where i.inhparent = queue loop
            execute format('create unique index on %s (grp, priority, seq)', segment);
            execute (select format('alter table %s replica identity using index %I', segment, c.relname)
                       from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = segment and i.indisunique);
        end loop;
    end loop;
    for segment in select c.oid from pg_class c
                    where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind = 'r' and c.relreplident = 'd'
                      and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary) loop
        execute format('alter table %s replica identity full', segment);
    end loop;
end $$;

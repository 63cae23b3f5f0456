-- An index on text in the database's order does not outlive a change of its locale, as a new C library brings
-- it: what is there is not found. Keys are compared by their bytes. No table is written anew, their indexes are.
do $$
declare
    queue regclass;
begin
    for queue in select format('%I.%I', current_schema(), q.name)::regclass from _queue q loop
        execute format('alter table %s alter column key type text collate "C"', queue);
    end loop;
end $$;

alter table _lease alter column key type text collate "C";

alter table _later alter column key type text collate "C";

alter table _dedup alter column dedup_key type text collate "C";

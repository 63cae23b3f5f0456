-- An ack of some jobs of a row writes the row anew. So where the jobs are compressed and still have more than 2 kB, they are in the TOAST table.

do $$ begin
    if exists (select from pg_attribute a where a.attrelid = '_lease_0'::regclass and a.attname = 'jobs' and a.attcompression = 'l') then
        alter table _lease_0 reset (toast_tuple_target);
        alter table _lease_1 reset (toast_tuple_target);
    end if;
end $$;

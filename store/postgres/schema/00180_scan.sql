-- A queue's scan (it was look) returns one job or none now, not a set.
do $$
declare
    made text;
begin
    for made in select p.oid::regprocedure::text from pg_proc p, _queue q
                 where p.pronamespace = quote_ident(current_schema())::regnamespace
                   and p.proname in ('_' || q.name || '.look', '_' || q.name || '.scan') loop
        execute 'drop function ' || made;
    end loop;
end $$;

-- A queue's operate returns something else now: define.sql gives the new one what was granted of the old one.
do $$
declare
    made record;
begin
    for made in select p.oid::regprocedure as old, format('_%s.~operate', q.name) as kept from _queue q join pg_proc p on p.proname = format('_%s.operate', q.name)
                 where p.pronamespace = quote_ident(current_schema())::regnamespace loop
        execute format('alter function %s rename to %I', made.old, made.kept);
    end loop;
end $$;
drop function if exists _operate(int, text, bigint[]), _operate_on(text, text, bigint[]);
drop policy if exists operator on _dead_job;

-- A queue's take returns rows of the queue, so that it is take_rows as well. The roles that may call it keep that right.

do $$
declare
    queue text;
    name  text;
    may   text[];
    role  text;
begin
    for queue in select q.name from _queue q order by q.id loop
        name := format('%I.%I', current_schema(), '_' || queue || '.take');
        may := array(select a.grantee::regrole::text from pg_proc p cross join lateral aclexplode(p.proacl) a
                      where p.oid = to_regprocedure(name || '(int, text, boolean)') and a.grantee <> p.proowner and a.grantee <> 0);
        execute format('drop function if exists %s(int, text, boolean)', name);
        execute format('drop function if exists %I.%I(int, text, boolean)', current_schema(), '_' || queue || '.take_rows');
        execute format('create function %s(n int, in_group text, due boolean default null, upkeep boolean default true) returns setof %I language sql as %L',
                       name, queue, format('select * from %I.%I where false', current_schema(), queue)); -- until the functions of queues are made anew
        foreach role in array may loop
            execute format('grant execute on function %s(int, text, boolean, boolean) to %s', name, role);
        end loop;
    end loop;
end $$;

drop function if exists _take_functions();

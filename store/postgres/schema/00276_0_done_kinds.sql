-- The history of done jobs has their kinds.

drop function if exists done_jobs(text, int, text);

do $$
declare
    queue text;
begin
    for queue in select q.name from _queue q where q.done_since is not null loop
        execute format('alter table %I add column kind text, add column kinds text[]', '_' || queue || '.done');
    end loop;
end $$;

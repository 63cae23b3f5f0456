-- A sequence that went back, by a failover that lost what came last, gave seqs again. From the next version
-- on a segment holds each once: of jobs that share one, all but the first get another.
do $$
declare
    queue   text;
    segment regclass;
begin
    for queue in select q.name from _queue q loop
        for segment in select i.inhrelid::regclass from pg_inherits i where i.inhparent = format('%I.%I', current_schema(), queue)::regclass loop
            execute format('alter table %s replica identity full', segment); -- or a publication refuses the update
            execute format('update %1$s t set seq = nextval(%2$L)
                             where exists (select from %1$s o where o.grp = t.grp and o.priority = t.priority and o.seq = t.seq and o.ctid < t.ctid)',
                           segment, format('%I.%I', current_schema(), format('_%s.seq', queue)));
        end loop;
    end loop;
end $$;

-- A segment leaves the list before it is truncated, see functions/queue_ring.sql and maintenance.sql.

alter table _segment
    add column if not exists writers text[],                         -- the virtual transactions that may still commit jobs into it; null: nobody has looked
    add column if not exists rest    integer,                        -- how many jobs it had when they were last counted
    add column if not exists leaving boolean not null default false, -- they are being carried over to the next one
    add column if not exists job     tid,                            -- one that a long search came to: while it is there nobody searches
    add column if not exists retired timestamptz,                    -- since when it is not listed
    add column if not exists again   timestamptz,                    -- it is not looked into before
    add column if not exists trouble text;                           -- why its maintenance failed last

-- What of each ring of two segments its register does not say.
create table if not exists _pair (
    name    text primary key,
    retired timestamptz, -- since when nobody looks into the other segment
    again   timestamptz  -- its lock is not tried before
);

insert into _pair (name) values ('_mark') on conflict do nothing;

-- Functions that have other arguments or results now, those of each queue, too.
drop function if exists _reclaim_segment(text, int), _reclaim_marks(), _rest_in(text, boolean), _rest_branch(boolean);

do $$
declare
    made text;
begin
    for made in select p.oid::regprocedure::text from pg_proc p, _queue q
                 where p.pronamespace = quote_ident(current_schema())::regnamespace
                   and p.proname in ('_' || q.name || '.aim') loop
        execute 'drop function ' || made;
    end loop;
end $$;

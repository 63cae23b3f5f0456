-- Queues: jobs for competing consumers. DESIGN.md, "Queues", explains what is here.
--
-- A queue is a ring of segments behind one table, like an outbox. Its functions are
-- made for it, because a static statement over one segment is planned once per
-- session, and a dynamic one at every call: _queue_functions holds their text.

-- +goose Up

create table _queue (
    id            integer generated always as identity primary key,
    name          text not null unique check (octet_length(name) between 1 and 48 and left(name, 1) <> '_'),
    lifo          boolean not null,
    segment_bytes bigint not null,
    max_attempts  integer not null default 25 check (max_attempts > 0),
    created_at    timestamptz not null default now()
);

-- The segments of a queue that are in use, in the order in which they came. Their
-- pointer, the sequence called ring, holds turn * 1024 + slot.
create table _segment (
    queue integer not null references _queue on delete cascade,
    slot  smallint not null,
    turn  bigint not null,
    primary key (queue, slot)
);

-- What a dequeue returns. id stays with a job through its retries; attempt is 1
-- the first time.
create type job as (
    id         bigint,
    key        text,
    grp        text,
    priority   smallint,
    attempt    integer,
    created_at timestamptz,
    headers    jsonb,
    payload    bytea
);

create type leased_job as (
    id          bigint,
    key         text,
    grp         text,
    priority    smallint,
    attempt     integer,
    created_at  timestamptz,
    headers     jsonb,
    payload     bytea,
    lease       bigint,
    lease_until timestamptz
);

-- The marks: where the jobs of a group and priority may still be. Insert-only, a
-- ring of two segments; the row with the highest n is true. A mark is written by
-- a transaction that takes jobs, and so comes and goes with what it took.
create sequence _mark_slot minvalue 0 maxvalue 1;
select setval('_mark_slot', 0);
create sequence _mark_n;

create table _mark (
    queue    integer not null,
    n        bigint not null default nextval('_mark_n'),
    base     bigint not null,   -- up to this seq the mark knows about
    seen     bigint not null,   -- what the sequence stood at before ...
    xid      xid8 not null,     -- ... this was drawn: whoever drew such a seq has a lower one
    turn     bigint not null,   -- of the ring when slots was made
    slot     smallint not null default pg_sequence_last_value('_mark_slot')::smallint,
    priority smallint not null,
    grp      text collate "C" not null,
    lo       bigint[] not null, -- jobs are at lo[i] <= seq <= hi[i], for an i, ...
    hi       bigint[] not null,
    pending  xid8[] not null,   -- ... or come from one of these, once it commits
    slots    smallint[] not null -- the segments, oldest first
) partition by list (slot);

create table _mark_0 partition of _mark for values in (0) with (autovacuum_enabled = false);
create table _mark_1 partition of _mark for values in (1) with (autovacuum_enabled = false);
create index on _mark (queue, grp, priority, n);

-- _admit_job is the check of a queue's table: one function without a search_path of its
-- own, as _admit_message is.
-- +goose StatementBegin
do $$ begin execute replace($ddl$
create function _admit_job(flags regclass, priority smallint, grp text, key text, headers jsonb, payload bytea) returns boolean
language plpgsql volatile as $fn$
begin
    if priority operator(pg_catalog.=) 0::smallint and key is null and headers is null
       and pg_catalog.octet_length(grp) operator(pg_catalog.<=) 256
       and pg_catalog.octet_length(payload) operator(pg_catalog.<=) 67108864 then
        return true;
    end if;
    return {schema}._admit_other_job(flags, priority, grp, key, headers, payload);
end $fn$ $ddl$, '{schema}', quote_ident(current_schema())); end $$;
-- +goose StatementEnd

-- _admit_other_job remembers in the queue's flags what its jobs have: bit 16 + p for jobs
-- of priority p, bit 32 for jobs with a key. It need not roll back: a flag too many costs
-- a look.
-- +goose StatementBegin
create function _admit_other_job(flags regclass, priority smallint, grp text, key text, headers jsonb, payload bytea) returns boolean
language plpgsql volatile security definer set search_path from current as $$
declare
    wanted bigint;
begin
    perform _refuse_job(payload, key, grp, priority, headers, null);
    wanted := (1::bigint << (16 + priority)) | case when key is not null then 1::bigint << 32 else 0 end;
    if pg_sequence_last_value(flags) & wanted <> wanted then
        if not exists (select from _queue q where _q(format('_%s.flags', q.name))::regclass = flags) then
            raise exception '% holds no flags of a queue', flags using errcode = '22023';
        end if;
        perform pg_advisory_lock(1885695597, flags::oid::int);
        perform setval(flags, pg_sequence_last_value(flags) | wanted);
        perform pg_advisory_unlock(1885695597, flags::oid::int);
    end if;
    return true;
end $$;
-- +goose StatementEnd

-- _queue_functions is the text of a queue's own functions. In it {schema}, {queue}
-- and the like stand for quoted names and {dir} for the order.
-- +goose StatementBegin
create function _queue_functions() returns text
language sql immutable set search_path from current as $text$ select $$

-- {slots} lists the segments that may hold jobs, in the order in which to scan them.
create or replace function {slots}() returns smallint[]
language plpgsql volatile as $fn$
begin
    return (
    select case when s.list @> array[s.here] then s.list
                when {lifo} then s.here || s.list else s.list || s.here end
      from (select (pg_sequence_last_value({ring}) % 1024)::smallint as here,
                   coalesce(array_agg(slot order by turn {dir}), '{}') as list
              from {schema}._segment where queue = {id}) s);
end $fn$;

-- {mark} writes a mark if that brings something. It reads the jobs that are there,
-- unlocked, from where the last mark says on: one whose taking is not committed is
-- still seen. What lies between them is gone, as far as the sequence had come when the
-- last mark was written: that mark's xid lies between the drawing of such a seq and the
-- snapshot taken here (docs/decisions/0003), so whoever drew it has ended, or is in
-- the snapshot's list and pending from now on.
create or replace function {mark}(in_grp text, in_priority smallint, bound bigint default null) returns {schema}._mark
language plpgsql volatile as $fn$
declare
    most     int := case width_bucket(random(), array[0.02, 0.3]) when 0 then 2048 when 1 then 64 else 1 end; -- one is enough while jobs go in order
    no_xid   boolean := bound is not null or pg_current_xact_id_if_assigned() is null;
    now_seen bigint := coalesce(bound, pg_sequence_last_value({seq}), 0);
    ring     bigint := pg_sequence_last_value({ring});
    snap     pg_snapshot := pg_current_snapshot();
    seqs     bigint[];
    ended    xid8[];
    late     int8multirange := '{}';
    gone     int8multirange;
    was      {schema}._mark;
    new      {schema}._mark;
begin
    select * into was from {schema}._mark k
     where k.queue = {id} and k.grp = in_grp and k.priority = in_priority order by k.n desc limit 1;
    if was.n is null then
        was.base := 0;
        was.lo := '{0}';
        was.hi := '{9223372036854775806}';
        was.seen := 0;
        was.xid := '0';
        was.pending := '{}';
    end if;
    -- A mark of this very transaction bounds nothing yet: its xid has not ended, and one
    -- before it may be missing from the snapshot's list for being the highest of all.
    new.base := case when was.xid < pg_snapshot_xmax(snap) then was.seen else was.base end;
    if was.lo[1] > now_seen and cardinality(was.lo) = 1 and was.pending = '{}' and was.seen = now_seen and was.turn = ring then
        return was; -- nothing has come since, and all is gone
    end if;
    select pg_current_snapshot(), array(
        select v.seq from unnest(was.lo, was.hi) i(lo, hi) cross join lateral (
            select t.seq from {queue} t
             where t.grp = in_grp and t.priority = in_priority and t.seq >= i.lo and t.seq <= least(i.hi, new.base)
             order by t.seq {dir} limit most) v limit most)
      into snap, seqs;
    new.pending := array(select x from unnest(was.pending) x where not pg_visible_in_snapshot(x, snap)
                         union
                         select x from pg_snapshot_xip(snap) x where new.base = was.seen and x < was.xid order by x);
    if no_xid then
        new.seen := now_seen;
    else -- it was drawn before the sequence was read, and bounds nothing: _refresh_marks will see to it
        new.seen := was.seen;
        perform setval({stale}, 1);
    end if;
    gone := int8multirange(int8range(0, 9223372036854775807)) - (select range_agg(int8range(i.lo, i.hi, '[]')) from unnest(was.lo, was.hi) i(lo, hi));
    ended := array(select x from unnest(was.pending) x where pg_visible_in_snapshot(x, snap));
    if ended <> '{}' then
        select case when count(*) <= 100 then range_agg(int8range(t.seq, t.seq, '[]'))
                    else int8multirange(int8range(min(t.seq), max(t.seq), '[]')) end
          into late
          from unnest(ended) x cross join lateral (
            select l.seq, l.grp, l.priority from {queue} l where l.xid = x offset 0) t -- by xid: a planner might prefer the other index
         where t.grp = in_grp and t.priority = in_priority;
    end if;
    gone := gone + int8multirange(case when cardinality(seqs) < most then int8range(0, new.base, '[]')
                                       when {lifo} then int8range(seqs[most], new.base, '[]')
                                       else int8range(0, seqs[most], '[]') end)
            - coalesce((select range_agg(int8range(s, s, '[]')) from unnest(seqs) s), '{}') - coalesce(late, '{}');
    select coalesce(range_agg(g.r), '{}') into gone
      from (select r from unnest(gone) r where lower(r) = 0 or upper(r) - lower(r) > 64
             order by lower(r) = 0 desc, upper(r) - lower(r) desc limit 64) g;
    select array_agg(lower(r) order by lower(r) {dir}), array_agg(upper(r) - 1 order by lower(r) {dir}) into new.lo, new.hi
      from unnest(int8multirange(int8range(0, 9223372036854775807)) - gone) r;
    if new.seen = was.seen and ring = was.turn and new.lo = was.lo and new.hi = was.hi and new.pending = was.pending then
        return was;
    end if;
    new.slots := case when ring = was.turn then was.slots else {slots}() end;
    insert into {schema}._mark (queue, base, seen, xid, turn, priority, grp, lo, hi, pending, slots)
    values ({id}, new.base, new.seen, case when no_xid then pg_current_xact_id() else was.xid end, ring, in_priority, in_grp, new.lo, new.hi, new.pending, new.slots)
    returning * into new;
    return new;
end $fn$;

-- {take_one} deletes one job of the group '' and returns it. It has a short way, which is
-- enough nearly always: one statement for a position that a register holds, and few
-- expressions, because PL/pgSQL prepares each anew in each transaction.
create or replace function {take_one}() returns setof {schema}.job
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $fn$
declare
    way  bigint := pg_sequence_last_value({way}) - {now} * 4096;
    came bigint;
    here bigint;
begin{newest_way}
    if way >= 0 and way < 1024 then
{exact_ways}
        if found then
            return;
        end if;
        way := way + 1024;
    end if;
    if way >= 1024 and way < 3072 then
{other_ways}
        if found then
            return;
        end if;
    end if;
    return query select {job} from {look}() t;
    {tick_if_due}
end $fn$;

-- {look} takes one job by the marks, which miss nothing, and says in registers where
-- the short way goes on (docs/decisions/0008). next is the last position that was drawn;
-- way is the time, in units of 25 ms, * 4096 + the manner * 1024 + the segment. It holds
-- until the time moves on, so what appears behind the position, by a rollback or a late
-- commit, is found by the next look; while one finds such jobs, all calls look. The manner
-- is 0 where each call draws a position and takes the job there, 1 where it takes the
-- first from there on that is free, and 2 with fewer than 64 jobs waiting: then nothing is
-- drawn, and the position stays before the first job that an unlocked read sees, so that
-- one whose taking is rolled back comes next.
--
-- LIFO draws positions downwards, and takes first what came after top: that far the
-- sequence had come when somebody last found nothing above the position.
create or replace function {look}() returns setof {queue}
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    was    bigint := pg_sequence_last_value({way});
    came   bigint := coalesce(pg_sequence_last_value({seq}), 0);
    pos    bigint := pg_sequence_last_value({next});
    top    bigint := pg_sequence_last_value({top});
    manner bigint := 0;
    first  bigint;
    job    {queue};
begin
    if pg_current_xact_id_if_assigned() is not null -- jobs that this transaction took may come back, and it does not see them
       or pg_sequence_last_value({flags}) <> 65536 then
        return query select * from {take_rows}(1, '');
        return;
    end if;
    if {now} - was / 4096 < 40 and was % 4096 < 2048 then -- others need not look meanwhile
        perform setval({way}, {now} * 4096 + was % 4096);
        manner := case when was % 4096 >= 1024 and random() < 0.9 then 1 else 0 end; -- there are batches, too
    end if;
    if not {lifo} then
        first := (select t.seq from {queue} t
                   where t.grp = '' and t.priority = 0
                     and t.seq >= (select k.lo[1] from {schema}._mark k where k.queue = {id} and k.grp = '' and k.priority = 0 order by k.n desc limit 1)
                   order by t.seq limit 1);
    end if;
    select * into job from {take_rows}(1, '', random() < 0.25);
    if {lifo} then
        if job.seq > top or job.seq <= pos + 64 -- and not further behind than those who have drawn a position and not yet come to it
           and (select count(*) from (select from {queue} t where t.grp = '' and t.priority = 0 and t.seq < job.seq and t.seq > job.seq - 256 limit 64) few) = 64 then
            perform setval({next}, case when job.seq > top then job.seq else least(pos, job.seq) end);
            perform setval({top}, came), setval({way}, {now} * 4096 + manner * 1024 + job.slot);
        else
            perform setval({way}, 0);
        end if;
    elsif job.seq is null then
        perform setval({next}, greatest(coalesce(first - 1, came), 0)), setval({way}, {now} * 4096 + 2048 + pg_sequence_last_value({ring}) % 1024);
    elsif came - pos < 64 then
        perform setval({next}, greatest(first, job.seq - 1000, 1) - 1), -- not over all that is gone behind a job that somebody holds
                setval({way}, {now} * 4096 + 2048 + job.slot);
    elsif job.seq >= pos - 64 then
        perform setval({next}, greatest(pos, job.seq)), setval({way}, {now} * 4096 + manner * 1024 + job.slot);
    else
        perform setval({way}, 0);
    end if;
    if job.seq is not null then
        return next job;
    end if;
end $fn$;

-- {aim} says in the registers where batches go on: at the first job that is free. {take}
-- calls it before it goes by the marks, and takes what is there itself.
create or replace function {aim}(n int, low bigint) returns void
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    was  bigint := pg_sequence_last_value({way});
    came bigint := pg_sequence_last_value({seq});
    pos  bigint := pg_sequence_last_value({next});
    free record;
begin
    if {now} - was / 4096 < 40 and was % 4096 < 2048 then -- others need not look meanwhile
        perform setval({way}, {now} * 4096 + 1024 + was % 1024);
    end if;
    if pos > came then
        pos := 0; -- drawn when there was nothing left
    end if;
    select t.seq, t.slot into free from {queue} t
     where t.grp = '' and t.priority = 0 and t.seq >= low and t.key is null order by t.seq limit 1 for update skip locked;
    if free.seq >= pos - n and came - free.seq >= 64 + n then -- else somebody is just coming to what he has drawn, or it appeared behind
        perform setval({next}, greatest(pos, free.seq + n - 1)), setval({way}, {now} * 4096 + 1024 + free.slot); -- beyond what this call takes
    else
        perform setval({way}, 0);
    end if;
end $fn$;

$$ $text$;
-- +goose StatementEnd

-- _take_function is the text of {take}, which deletes up to n jobs of a group and returns
-- them, by priority and in order, and of {take_rows}, which returns them as the queue's
-- rows: two functions, because another level copies every job once more.
-- +goose StatementBegin
create function _take_function() returns text
language sql immutable set search_path from current as $text$ select $$
create or replace function {name}(n int, in_grp text, due boolean default null) returns setof {type}
language plpgsql volatile {as_whom} set enable_seqscan = off set enable_bitmapscan = off
set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags bigint := pg_sequence_last_value({flags});
    p     int := 0;
    m     record;
    here  smallint;
    low   bigint;
    high  bigint;
    todo  int := n;
    got   int;
    way   bigint;
    pos   bigint;
begin
    if (n between 1 and 10000) is not true then
        raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call it again for more';
    end if;
    -- A batch that goes on where the last one ended does not step over what others hold.
    if n > 1 and in_grp = '' and flags = 65536 and not {lifo} then
        loop
            way := pg_sequence_last_value({way}) - {now} * 4096;
            exit when way not between 0 and 2047;
            if way < 1024 then -- see {look}
                way := way + 1024;
                perform setval({way}, {now} * 4096 + way);
            end if;
            pos := pg_sequence_last_value({next});
            perform setval({next}, pos + todo);
{batch_ways}
            get diagnostics got = row_count;
            todo := todo - got;
            exit when todo <= 0 or got = 0;
        end loop;
        if todo <= 0 then
            {tick_if_due}
            return;
        end if;
    end if;
    -- A mark pays once for so many jobs, where much may be gone.
    due := coalesce(due, random() < case when n < 16 then n / 64.0 else 0.125 end);
    if flags <> 65536 then -- there is more than jobs of priority 0
        if flags & 8589934592 <> 0 then
            return; -- paused
        end if;
        if flags & 21474836480 <> 0 then -- keyed, or limited
            return query select {row} from {take_keyed}(n, in_grp, false) t;
            {tick_if_due}
            return;
        end if;
        p := -16;
    end if;
    <<levels>>
    loop
        if p = 0 or flags & (1::bigint << (16 + p)) <> 0 then
            if pg_sequence_last_value({mark_slot}) = 0 then
                select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from {schema}._mark_0 k
                 where k.queue = {id} and k.grp = in_grp and k.priority = p order by k.n desc limit 1;
            else
                select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from {schema}._mark_1 k
                 where k.queue = {id} and k.grp = in_grp and k.priority = p order by k.n desc limit 1;
            end if;
            if m.n is null or due and pg_sequence_last_value({seq}) - m.lo[1] > 256
               or m.pending <> '{}' and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot())) then
                select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from {mark}(in_grp, p::smallint) k;
            end if;
            if m.turn <> pg_sequence_last_value({ring}) then
                m.slots := {slots}();
            end if;
            low := m.lo[1];
            high := case when cardinality(m.lo) = 1 then m.hi[1] end;
            if way is not null and todo = n and pg_sequence_last_value({seq}) - low >= 512 and pg_current_xact_id_if_assigned() is null then
                perform {aim}(n, low);
            end if;
            foreach here in array m.slots loop
{branches}
                get diagnostics got = row_count;
                todo := todo - got;
                exit levels when todo <= 0;
            end loop;
        end if;
        exit when p = 15 or flags = 65536;
        p := p + 1;
    end loop;
    {tick_if_due}
end $fn$;
$$ $text$;
-- +goose StatementEnd

-- One segment of them. A job with a key, the first one of the queue, may be committed
-- after the flags were read: it is left to {take_keyed}. The segment is named, so that
-- the statement opens one table and not the whole ring. All rows are locked first and
-- deleted then: locked one by one between deletes, they make workers who go over the same
-- rows meet at each.
-- +goose StatementBegin
create function _take_branch() returns text
language sql immutable set search_path from current as $text$ select $$
                if high is null then
                    return query
                    with d as (
                        delete from {segment} t where t.ctid = any (array(
                            select v.ctid from unnest(m.lo, m.hi) i(lo, hi) cross join lateral (
                                select t.ctid from {segment} t
                                 where t.grp = in_grp and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.key is null
                                 order by t.seq {dir} limit todo for update skip locked) v limit todo))
                        returning t.*)
                    select {row} from d t order by t.seq {dir};
                else
                    return query
                    with d as (
                        delete from {segment} t where t.ctid = any (array(
                            select t.ctid from {segment} t
                             where t.grp = in_grp and t.priority = p and t.seq >= low and t.seq <= high and t.key is null
                             order by t.seq {dir} limit todo for update skip locked))
                        returning t.*)
                    select {row} from d t order by t.seq {dir};
                end if;$$ $text$;
-- +goose StatementEnd

-- A row of _tick has a queue ticked when the transaction that wrote it commits: ticking
-- locks tables until its transaction ends, and a caller's may go on for long.
create table _tick (
    id    bigint generated always as identity primary key,
    queue integer not null
);

-- _tick_if_due does what time demands, now and then.
-- +goose StatementBegin
create function _tick_if_due() returns text
language sql immutable set search_path from current as $text$ select $$
    if date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value({tick_register}) >= 250
       and current_setting('transaction_isolation') = 'read committed' then
        insert into {schema}._tick (queue) values ({id});
    end if;$$ $text$;
-- +goose StatementEnd

-- _job_columns makes a job of a row t of a queue.
-- +goose StatementBegin
create function _job_columns() returns text
language sql immutable set search_path from current as $$
    select 'coalesce(t.id, t.seq), t.key, t.grp, t.priority, t.attempt + 1, t.created_at, t.headers, t.payload'
$$;
-- +goose StatementEnd

-- The statements of the short way through one segment. exact: the job at the position
-- that is drawn, if nobody has ever locked it: without a lock of its own it costs half.
-- Somebody may lock the job between the look at xmax and the delete, which then waits for
-- him; but a position is drawn once, and who takes batches says so first (manner 1).
-- free: the first from there on that is free, but not far, because a scan reads all
-- entries of an index page that are within its bounds.
-- +goose StatementBegin
create function _short_way(manner text) returns text
language sql immutable set search_path from current as $text$ select replace($$
            return query
            delete from {segment} t where {which}
            returning {job};$$, '{which}', case manner
    when 'exact' then $$t.grp = '' and t.priority = 0 and t.seq = (select nextval({next})) and t.xmax = '0' and t.key is null$$
    when 'free' then $$t.ctid = (
                select t.ctid from {segment} t
                 where t.grp = '' and t.priority = 0 and t.key is null
                   and t.seq {from} (select nextval({next})) and t.seq {to} (select pg_sequence_last_value({next}) {ahead} 16)
                 order by t.seq {dir} limit 1 for update skip locked)$$
    when 'undrawn' then $$t.ctid = (
                select t.ctid from {segment} t
                 where t.grp = '' and t.priority = 0 and t.key is null and t.seq > (select pg_sequence_last_value({next}))
                 order by t.seq limit 1 for update skip locked)$$
    when 'newest' then $$t.ctid = (
                select t.ctid from {segment} t
                 where t.grp = '' and t.priority = 0 and t.key is null and t.seq > (select pg_sequence_last_value({top}))
                 order by t.seq desc limit 1 for update skip locked)$$ end) $text$;
-- +goose StatementEnd

-- The short way of a batch through one segment.
-- +goose StatementBegin
create function _batch_way() returns text
language sql immutable set search_path from current as $text$ select $$
            return query
            with d as (
                delete from {segment} t where t.ctid = any (array(
                    select t.ctid from {segment} t
                     where t.grp = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + 2 * todo and t.key is null
                     order by t.seq limit todo for update skip locked))
                returning t.*)
            select {row} from d t order by t.seq;$$ $text$;
-- +goose StatementEnd

-- The newest job of a LIFO queue, if one has come that the registers do not know.
-- +goose StatementBegin
create function _newest_way() returns text
language sql immutable set search_path from current as $text$ select $$
    if way >= 0 and way < 2048 and pg_sequence_last_value({seq}) > pg_sequence_last_value({top}) then
        came := pg_sequence_last_value({seq});
        here := pg_sequence_last_value({ring}) % 1024;
{newest_ways}
        if found then
            return;
        end if;
        came := setval({top}, came);
    end if;$$ $text$;
-- +goose StatementEnd

-- _choose is PL/pgSQL that runs one of several texts: the one whose key is the last that
-- is not above what. Keys are literals in order. Of a hundred it compares with seven,
-- where CASE would with all.
-- +goose StatementBegin
create function _choose(what text, keys text[], texts text[]) returns text
language sql immutable set search_path from current as $$
    select case when coalesce(cardinality(keys), 0) <= 1 then coalesce(texts[1], '')
                else format(e'if %s < %s then\n%s\nelse\n%s\nend if;', what, keys[half + 1],
                            _choose(what, keys[:half], texts[:half]), _choose(what, keys[half + 1:], texts[half + 1:])) end
      from (select cardinality(keys) / 2 as half) h
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function _slots(queue text) returns table (slot int)
language sql stable set search_path from current as $$
    select substring(c.relname from '\.([0-9]+)$')::int
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = _q(queue)::regclass
$$;
-- +goose StatementEnd

-- _for_segments is PL/pgSQL that runs a statement for the segment whose number, after
-- base, is what.
-- +goose StatementBegin
create function _for_segments(queue text, what text, statement text, base int default 0) returns text
language sql stable set search_path from current as $$
    select _choose(what, array_agg((base + s.slot)::text order by s.slot),
                   array_agg(replace(statement, '{segment}', _q(format('_%s.%s', queue, s.slot))) order by s.slot))
      from _slots(queue) s
$$;
-- +goose StatementEnd

-- _define makes the functions of a queue, or makes them anew.
-- +goose StatementBegin
create function _define(queue text) returns void
language plpgsql set search_path from current as $$
declare
    q      _queue := (select q from _queue q where q.name = queue);
    text   text   := _queue_functions();
    taking text   := _take_function();
    word   text;
begin
    taking := replace(taking, '{branches}', _for_segments(queue, 'here', _take_branch()));
    taking := replace(taking, '{batch_ways}', _for_segments(queue, 'way', _batch_way(), 1024));
    text := text || replace(replace(replace(replace(replace(taking, '{name}', '{take}'), '{type}', '{schema}.job'), '{row}', _job_columns()),
                                    '{as_whom}', 'security definer set search_path = pg_catalog, pg_temp'), '{tick_if_due}', _tick_if_due())
                 || replace(replace(replace(replace(replace(taking, '{name}', '{take_rows}'), '{type}', '{queue}'), '{row}', 't.*'),
                                    '{as_whom}', ''), '{tick_if_due}', '');
    text := replace(text, '{tick_if_due}', _tick_if_due());
    text := replace(text, '{exact_ways}', _for_segments(queue, 'way', _short_way('exact')));
    text := replace(text, '{other_ways}', _choose('way', '{1024,2048}', array[_for_segments(queue, 'way', _short_way('free'), 1024),
                                                  case when q.lifo then '' else _for_segments(queue, 'way', _short_way('undrawn'), 2048) end]));
    text := replace(text, '{newest_way}', case when q.lifo then _newest_way() else '' end);
    text := replace(text, '{newest_ways}', _for_segments(queue, 'here', _short_way('newest')));
    foreach word in array array['slots', 'mark', 'take', 'take_one', 'take_rows', 'take_keyed', 'look', 'aim'] loop
        text := replace(text, '{' || word || '}', _q(format('_%s.%s', queue, word)));
    end loop;
    foreach word in array array['ring', 'flags', 'seq', 'stale', 'way', 'next', 'top'] loop
        text := replace(text, '{' || word || '}', quote_literal(_q(format('_%s.%s', queue, word))) || '::regclass');
    end loop;
    text := replace(text, '{now}', '(date_part(''epoch'', clock_timestamp()) * 40)::bigint');
    text := replace(text, '{job}', _job_columns());
    text := replace(text, '{tick_register}', quote_literal(_q(format('_%s.tick', queue))) || '::regclass');
    text := replace(text, '{mark_slot}', quote_literal(_q('_mark_slot'::text)) || '::regclass');
    text := replace(text, '{queue}', _q(queue));
    text := replace(text, '{schema}', quote_ident(current_schema()));
    text := replace(text, '{id}', q.id::text);
    text := replace(text, '{lifo}', q.lifo::text);
    text := replace(text, '{dir}', case when q.lifo then 'desc' else 'asc' end);
    text := replace(text, '{from}', case when q.lifo then '<=' else '>=' end);
    text := replace(text, '{to}', case when q.lifo then '>=' else '<=' end);
    text := replace(text, '{ahead}', case when q.lifo then '-' else '+' end);
    execute text;
    foreach word in array array['slots()', 'mark(text, smallint, bigint)', 'take(int, text, boolean)', 'take_one()', 'take_rows(int, text, boolean)', 'look()', 'aim(int, bigint)'] loop
        execute format('revoke execute on function %s%s from public', _q(format('_%s.%s', queue, split_part(word, '(', 1))), '(' || split_part(word, '(', 2));
    end loop;
end $$;
-- +goose StatementEnd

-- create_queue makes a queue. Errors: 42P07 (duplicate_table) if the name is taken,
-- 23514 for a name that cannot be used, 22023 for a kind that is not fifo or lifo.
-- +goose StatementBegin
create function create_queue(name text, kind text default 'fifo', segments int default 8, segment_bytes bigint default 67108864) returns void
language plpgsql set search_path from current as $$
declare
    seq_name   text := _q(format('_%s.seq', name));
    ring_name  text := _q(format('_%s.ring', name));
    flags_name text := _q(format('_%s.flags', name));
    register   text;
    made       int;
begin
    if kind is null or kind not in ('fifo', 'lifo') then
        raise exception 'the kind is %, expected fifo or lifo', coalesce(quote_literal(kind), 'null') using errcode = '22023';
    end if;
    if segments not between 2 and 1000 then
        raise exception 'segments is %, expected 2 to 1000', segments using errcode = '22023';
    end if;
    if segment_bytes < 65536 then
        raise exception 'segment_bytes is %, expected at least 65536', segment_bytes using errcode = '22023';
    end if;
    if exists (select from _queue q where q.name = create_queue.name) then
        raise exception 'the queue % exists already', quote_literal(name) using errcode = '42P07';
    end if;
    perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0); -- the dispatch functions are made by one at a time
    insert into _queue (name, lifo, segment_bytes) values (name, kind = 'lifo', segment_bytes) returning id into made;
    insert into _segment (queue, slot, turn) values (made, 0, 0);
    execute format('create sequence %s', seq_name);
    -- Sequences used as registers, see create_outbox. seen and since: the value of seq
    -- when it was last looked at, and the time, in ms, since which it has been that.
    -- way, next and top: where a job is to be found quickly, see {look}.
    -- stale: 1 if there are marks that could not bring their bound up to date.
    foreach register in array array[ring_name, flags_name, _q(format('_%s.seen', name)), _q(format('_%s.since', name)),
                                    _q(format('_%s.stale', name)), _q(format('_%s.way', name)), _q(format('_%s.next', name)),
                                    _q(format('_%s.top', name)), _q(format('_%s.tick', name))] loop
        execute format('create sequence %s minvalue 0', register);
        perform setval(register, 0);
    end loop;
    perform setval(flags_name, 65536);
    if kind = 'lifo' then
        execute format('alter sequence %s increment -1 minvalue -9223372036854775807', _q(format('_%s.next', name)));
    end if;
    execute format($ddl$
        create table %1$s (
            xid        xid8        not null default pg_current_xact_id(), -- must come before seq, see _mark
            seq        bigint      not null default nextval(%2$L),
            created_at timestamptz not null default clock_timestamp(),
            id         bigint,                                            -- null: seq
            attempt    integer     not null default 0,                    -- how many it has had
            priority   smallint    not null default 0,
            slot       smallint    not null default (pg_sequence_last_value(%3$L) %% 1024)::smallint,
            grp        text        collate "C" not null default '',
            key        text ,
            headers    jsonb,
            payload    bytea       not null,
            failures   jsonb,
            constraint admitted check (%4$I._admit_job(%5$L, priority, grp, key, headers, payload))
        ) partition by list (slot)$ddl$,
        _q(name), seq_name, ring_name, current_schema(), flags_name);
    execute format('create index on %s (grp, priority, seq)', _q(name));
    execute format('create index on %s (xid)', _q(name));
    execute format('create index on %s (key, id, seq) where key is not null', _q(name));
    for slot in 0 .. segments - 1 loop
        execute format('create table %s partition of %s for values in (%s)
                        with (autovacuum_enabled = false, toast.autovacuum_enabled = false)',
                       _q(format('_%s.%s', name, slot)), _q(name), slot);
    end loop;
    perform _define(name);
    perform _define_jobs(name);
    perform _dispatch();
    perform _dispatch_jobs();
end $$;
-- +goose StatementEnd

-- _dispatch makes dequeue anew: a branch for each queue, because a static call costs
-- a sixth of a dynamic one.
-- +goose StatementBegin
create function _dispatch() returns void
language plpgsql set search_path from current as $$
declare
    names    text[];
    branches text[];
begin
    select array_agg(quote_literal(q.name) order by q.name collate "C"),
           array_agg(format('if queue = %L then
    if n = 1 and grp = '''' then
        return query select * from %s();
    else
        return query select * from %s(n, grp);
    end if;
    return;
end if;', q.name, _q(format('_%s.take_one', q.name)), _q(format('_%s.take', q.name)))
                     order by q.name collate "C")
      into names, branches from _queue q;
    execute format($ddl$
create or replace function dequeue(queue text, n int default 1, grp text default '') returns setof job
language plpgsql volatile as $fn$
#variable_conflict use_variable
begin
%s
    raise exception 'there is no queue %%', coalesce(quote_literal(queue), 'null')
    using errcode = '42P01', hint = 'create it with: penstock queue create ' || coalesce(quote_literal(queue), 'NAME');
end $fn$ $ddl$, _choose('queue collate "C"', names, branches));
end $$;
-- +goose StatementEnd

-- _rest_in says whether a segment holds a job, and the snapshot in which it looked.
-- Where jobs are taken from one end it looks from the other: while some are left,
-- that is one probe.
-- +goose StatementBegin
create function _rest_in(segment text, lifo boolean, out rest boolean, out snap pg_snapshot)
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
    execute format('select exists (select from (select from %s t order by t.xid %s limit 1) one), pg_current_snapshot()',
                   segment, case when lifo then 'asc' else 'desc' end) into rest, snap;
end $$;
-- +goose StatementEnd

-- _reclaim_segment truncates a segment that holds no job and says whether it did.
-- What it had not seen before it got the lock can only come from transactions that
-- were in flight then, or younger: a delete that is not committed hides nothing.
-- +goose StatementBegin
create function _reclaim_segment(queue text, slot int) returns boolean
language plpgsql volatile set search_path from current set lock_timeout = '20ms'
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    q       _queue := (select q from _queue q where q.name = queue);
    segment text := _q(format('_%s.%s', queue, slot));
    looked  record;
    late    boolean;
begin
    select * into looked from _rest_in(segment, q.lifo);
    if looked.rest then
        return false;
    end if;
    execute format('lock table %s in access exclusive mode', segment);
    execute format('select exists (select from %1$s t where t.xid = any ($1)) or exists (select from %1$s t where t.xid >= $2)', segment)
       into late using array(select pg_snapshot_xip(looked.snap)), pg_snapshot_xmax(looked.snap);
    if late then
        return false;
    end if;
    execute format('truncate table %s', segment);
    delete from _segment s where s.queue = q.id and s.slot = _reclaim_segment.slot;
    return true;
exception when lock_not_available then
    return false;
end $$;
-- +goose StatementEnd

-- _refresh_marks makes the marks that transactions could not bring up to date because
-- they had an xid before they looked. It has to be the first of a transaction.
-- +goose StatementBegin
create function _refresh_marks(queue text) returns void
language plpgsql volatile security definer set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    stale    regclass := _q(format('_%s.stale', queue))::regclass;
    queue_id int := (select q.id from _queue q where q.name = queue);
    seq      bigint;
    lane     record;
begin
    if pg_sequence_last_value(stale) = 0 or pg_current_xact_id_if_assigned() is not null then
        return;
    end if;
    seq := coalesce(pg_sequence_last_value(_q(format('_%s.seq', queue))::regclass), 0);
    perform setval(stale, 0); -- draws the xid
    for lane in select distinct m.grp, m.priority from _mark m where m.queue = queue_id loop
        execute format('select %s($1, $2, $3)', _q(format('_%s.mark', queue))) using lane.grp, lane.priority, seq;
    end loop;
end $$;
-- +goose StatementEnd

-- _maintain_ring truncates the segments of a queue that hold no job any more and
-- moves its pointer on when the current one is full, or holds nothing. It is called
-- about once a second, at the end of a short transaction: the locks on what it
-- truncates last until that ends. force does not wait for the queue to be idle.
--
-- Each TRUNCATE rewrites catalogue rows, which a pinned snapshot keeps; so a queue in
-- use gives a segment back only when that is worth it.
-- +goose StatementBegin
create function _maintain_ring(queue text, force boolean default false) returns void
language plpgsql volatile security definer set search_path from current as $$
declare
    q         _queue;
    ring      regclass := _q(format('_%s.ring', queue))::regclass;
    seen      regclass := _q(format('_%s.seen', queue))::regclass;
    since     regclass := _q(format('_%s.since', queue))::regclass;
    now_ms    bigint := extract(epoch from clock_timestamp()) * 1000;
    seq       bigint := coalesce(pg_sequence_last_value(_q(format('_%s.seq', queue))::regclass), 0);
    current   int;
    next_slot int;
    stray     int;
    bytes     bigint;
    idle      bigint;
begin
    perform _read_committed();
    select * into q from _queue x where x.name = queue;
    if not pg_try_advisory_xact_lock('_queue'::regclass::oid::int, q.id) then
        return;
    end if;
    if seq <> pg_sequence_last_value(seen) then
        perform setval(seen, seq), setval(since, now_ms);
    end if;
    idle := now_ms - pg_sequence_last_value(since);
    current := pg_sequence_last_value(ring) % 1024;
    -- A segment that is written to and not listed: its rotation was rolled back, or the
    -- writer had read the pointer before it moved, and came when it was truncated.
    for stray in select g.slot from _slots(queue) g
                  where (g.slot = current or pg_relation_size(_q(format('_%s.%s', queue, g.slot))) > 0)
                    and not exists (select from _segment s where s.queue = q.id and s.slot = g.slot) loop
        perform setval(ring, (pg_sequence_last_value(ring) / 1024 + 1) * 1024 + current); -- the lists in marks are out of date
        insert into _segment (queue, slot, turn)
        select q.id, stray, case when stray = current then pg_sequence_last_value(ring) / 1024 else coalesce(min(s.turn), 0) - 1 end
          from _segment s where s.queue = q.id;
    end loop;
    perform _reclaim_segment(q.name, s.slot) from _segment s where s.queue = q.id and s.slot <> current order by s.turn;
    bytes := pg_table_size(_q(format('_%s.%s', queue, current)));
    if bytes >= q.segment_bytes
       or pg_relation_size(_q(format('_%s.%s', queue, current))) > 0
          and (force or bytes >= least(q.segment_bytes, 16777216) or idle >= case when bytes >= 1048576 then 1000 else 10000 end)
          and not (select rest from _rest_in(_q(format('_%s.%s', queue, current)), q.lifo)) then
        select g.slot into next_slot
          from _slots(queue) g
         where not exists (select from _segment s where s.queue = q.id and s.slot = g.slot)
           and pg_relation_size(_q(format('_%s.%s', queue, g.slot))) = 0
         order by (g.slot < current), g.slot limit 1;
        if next_slot is not null then
            perform setval(ring, (pg_sequence_last_value(ring) / 1024 + 1) * 1024 + next_slot);
            insert into _segment (queue, slot, turn) values (q.id, next_slot, pg_sequence_last_value(ring) / 1024);
            if bytes < q.segment_bytes then
                perform _reclaim_segment(queue, current);
            end if;
        end if;
    end if;
    perform _reclaim_marks();
end $$;
-- +goose StatementEnd

-- _reclaim_marks moves the pointer to the other segment of marks once the current one
-- is large, carries over the marks that are still true, and truncates the rest. A mark
-- that is lost costs a scan and nothing else: an older one stays valid for ever.
-- +goose StatementBegin
create function _reclaim_marks() returns boolean
language plpgsql volatile security definer set search_path from current set lock_timeout = '20ms'
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    current int;
    sealed  int;
begin
    if not pg_try_advisory_xact_lock('_mark'::regclass::oid::int, 0) then
        return false;
    end if;
    current := pg_sequence_last_value('_mark_slot');
    sealed := 1 - current;
    if pg_relation_size(_q('_mark_' || sealed)) = 0 then
        if pg_relation_size(_q('_mark_' || current)) >= 4194304 then
            perform setval('_mark_slot', sealed); -- emptied by the next call
        end if;
        return false;
    end if;
    execute format($sql$
        insert into _mark (queue, n, base, seen, xid, turn, priority, grp, lo, hi, pending, slots)
        select l.queue, l.n, l.base, l.seen, l.xid, l.turn, l.priority, l.grp, l.lo, l.hi, l.pending, l.slots
          from (select distinct queue, grp, priority from %1$s) d
         cross join lateral (select * from %1$s m where m.queue = d.queue and m.grp = d.grp and m.priority = d.priority order by m.n desc limit 1) l
         where exists (select from _queue q where q.id = d.queue)
           and not exists (select from %2$s x where x.queue = d.queue and x.grp = d.grp and x.priority = d.priority)$sql$,
        _q('_mark_' || sealed), _q('_mark_' || current));
    execute format('lock table %s in access exclusive mode', _q('_mark_' || sealed));
    execute format('truncate table %s', _q('_mark_' || sealed));
    return true;
exception when lock_not_available then
    return false;
end $$;
-- +goose StatementEnd

select _dispatch();

-- +goose StatementBegin
do $$ begin
    execute format('revoke execute on all functions in schema %I from public', current_schema());
    grant execute on function _q(text), _read_committed(), _admit_message(text, text, text, jsonb, bytea) to public; -- they only look
    grant execute on function dequeue(text, int, text) to public;    -- it calls what belongs to one queue
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';

-- Taking one job, the way most workers do (docs/decisions/0008, 0009).

insert into _template (kind, name, body) select 'queue', 'dequeue', _qualified($$

-- dequeue_NAME takes the next job of the group '' of the queue NAME, as dequeue does by
-- default, a sixth cheaper, because no name is looked up. It has a fast path, which is enough
-- nearly always: one statement for a position that a register holds, and few expressions,
-- because PL/pgSQL prepares each anew in each transaction. For the same reason it has no
-- search_path, which is a twentieth of it; _qualified finds where its names are.
create or replace function {dequeue}() returns setof {schema}.job
language plpgsql volatile security definer set enable_seqscan to off as $fn$ declare
    path bigint := case when pg_sequence_last_value({flags}) = '{plain}' then pg_sequence_last_value({fast_path}) - ({now} * 4096) end;
    came bigint;
    here bigint;
    job  {schema}.job;
begin
{if lifo}
    -- The newest job, if one has come that the registers do not know.
    if path >= 0 and path < 2048 and pg_sequence_last_value({seq}) > pg_sequence_last_value({top}) then
        came := pg_sequence_last_value({seq});
        here := pg_sequence_last_value({ring}) % '1024';
{segments here}
            return query delete from {segment} t where t.ctid = (
                select t.ctid from {segment} t
                 where t.group_key = '' and t.priority = 0 and {alone} and t.seq > (select pg_sequence_last_value({top}))
                 order by t.seq desc limit 1 for update skip locked)
            returning {job};
{end}
        if found then return; end if;
        came := setval({top}, came);
    end if;
{end if}
    -- The job at the position that is drawn, if it was never locked: without a separate lock it costs
    -- half. Another session may lock the job between the look at xmax and the delete, which then waits
    -- for it. But a position is drawn once, and a session that takes batches notes that first (mode 1). A
    -- transaction that may hold locks waits for no job.
    if path >= 0 and path < 1024 and pg_catalog.pg_current_xact_id_if_assigned() is null then
{segments path}
            return query delete from {segment} t where t.group_key = '' and t.priority = 0 and t.seq = (select nextval({next})) and t.xmax = '0' and {alone}
            returning {job};
{end}
        if found then return; end if;
    end if;
    if path >= 0 and path < 3072 then
{if fifo}
        here := path % '1024';
        -- Mode 1: the first from the drawn position on that is free, but not far: a scan reads all entries of an index page within its bounds. Mode 2: from
        -- the position on, which stays.
{segments here}
        return query delete from {segment} t where t.ctid = (
            select t.ctid from {segment} t
             where t.group_key = '' and t.priority = 0 and {alone}
               and t.seq > (select case when path < 2048 then nextval({next}) - 1 else pg_sequence_last_value({next}) end)
               and t.seq <= (select case when path < 2048 then pg_sequence_last_value({next}) + 16 else 9223372036854775807 end)
             order by t.seq limit 1 for update skip locked)
        returning {job};
{end}
{end if}
{if lifo}
        here := path % '1024';
{segments here}
        return query delete from {segment} t where t.ctid = (
            select t.ctid from {segment} t
             where t.group_key = '' and t.priority = 0 and {alone}
               and t.seq <= (select nextval({next})) and t.seq >= (select pg_sequence_last_value({next}) - 16)
             order by t.seq desc limit 1 for update skip locked)
        returning {job};
{end}
{end if}
        if found then return; end if;
    end if;
    job := {scan}();
    if job.id is not null then return next job; end if;
    {maintain_if_due}
end $fn$;
$$);

insert into _template (kind, name, body) select 'queue', 'scan', $$

-- {scan} is the slow path: it takes one job by the skip map, which misses nothing, and notes in registers
-- where the fast path continues (docs/decisions/0008). next is the last position that was drawn;
-- fast_path is the time, in units of 25 ms, * 4096 + the mode * 1024 + the segment. It holds until the
-- time moves on. So a job that appears behind the position, by a rollback or a late commit, is found by
-- the next scan; while one finds such jobs, all calls scan. The mode is 0 where each call draws a
-- position and takes the job there, and 1 where it takes the first from there on that is free. It is 2
-- with fewer than 64 jobs waiting: then nothing is drawn. The position stays before the first job that
-- an unlocked read sees, so that one whose taking is rolled back comes next.
--
-- LIFO draws positions downwards, and takes first the jobs after top: that far the sequence had
-- come at the last scan that found nothing above the position.
create or replace function {scan}() returns {schema}.job
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $fn$ declare
    was    bigint := pg_sequence_last_value({fast_path});
    came   bigint := coalesce(pg_sequence_last_value({seq}), 0);
    pos    bigint := pg_sequence_last_value({next});
    mode   bigint;
    first  bigint;
    here   smallint;
{if fifo}
    other  bigint;
{end if}
{if lifo}
    top    bigint := pg_sequence_last_value({top});
    few    int;
{end if}
    m      record;
    job    record;
begin
    if pg_current_xact_id_if_assigned() is not null -- jobs that this transaction took may come back, and it does not see them
       or pg_sequence_last_value({flags}) <> {plain} then
        select row({job})::{schema}.job as row into job from {take}(1, '', upkeep => false) t;
        return job.row;
    end if;
    if {now} - was / 4096 < 40 and was % '4096' < 2048 then -- others need not scan meanwhile
        perform setval({fast_path}, {now} * 4096 + was % '4096');
        mode := case when was % '4096' >= 1024 and random() < '0.9' then 1 else 0 end; -- there are also batches
    end if;
{leaf of skip_map}
    select k.turn, k.slots, k.slots[1] as slot, k.lo[1] as low, k.hi[1] as high,
           k.turn = pg_sequence_last_value({ring}) and cardinality(k.slots) = 1 and cardinality(k.lo) = 1 and cardinality(k.pending) = 0 as plain
      into m from {leaf} k where k.queue = {id} and k.group_key = '' and k.priority = 0 order by k.n desc limit 1;
{end}
    if m.plain and (came - m.low <= 256 or random() > '0.25') then -- one range in one segment: without {take}, which costs a new session half as much again
{segments m.slot}
{if fifo}
        if came - pos < 64 then
            select t.seq into first from {segment} t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
        end if;
{end if}
        delete from {segment} t where t.ctid = (
            select t.ctid from {segment} t
             where t.group_key = '' and t.priority = 0 and t.seq >= m.low and t.seq <= m.high and {alone}
             order by t.seq {dir} limit 1 for update skip locked)
        returning row({job})::{schema}.job as row, t.seq, t.slot into job;
{end}
    else
{if fifo}
        if came - pos < 64 then
            foreach here in array case when m.turn = pg_sequence_last_value({ring}) then m.slots else {slots} end loop
{segments here}
                select t.seq into other from {segment} t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
{end}
                first := least(first, other);
            end loop;
        end if;
{end if}
        select row({job})::{schema}.job as row, t.seq, t.slot into job from {take}(1, '', coalesce(m.plain, false) or random() < '0.25', false) t;
    end if;
{if lifo}
    here := job.slot;
{segments here}
    select count(*) into few from (select from {segment} t where t.group_key = '' and t.priority = 0 and t.seq < job.seq and t.seq > job.seq - 256 limit 64) f;
{end}
    if job.seq > top or job.seq <= pos + 64 and few = 64 then -- and not further behind than those who have drawn a position and not yet come to it
        perform setval({next}, case when job.seq > top then job.seq else least(pos, job.seq) end);
        perform setval({top}, came), setval({fast_path}, {now} * 4096 + coalesce(mode, 0) * 1024 + job.slot);
    else
        perform setval({fast_path}, 0);
    end if;
{end if}
{if fifo}
    if came - pos >= 64 then
        if job.seq >= pos - 64 then
            -- Positions that were drawn for another segment than the job's are given back: nothing was there.
            perform setval({next}, case when was = 0 or was % '1024' <> job.slot then job.seq else greatest(pos, job.seq) end),
                    setval({fast_path}, {now} * 4096 + coalesce(mode, 0) * 1024 + job.slot);
        elsif job.seq is null then -- the next scan reads the first
            perform setval({next}, came), setval({fast_path}, 0);
        else
            perform setval({fast_path}, 0);
        end if;
    elsif job.seq is null then
        perform setval({next}, greatest(coalesce(first - 1, came), 0)), setval({fast_path}, {now} * 4096 + 2048 + pg_sequence_last_value({ring}) % '1024');
    else
        perform setval({next}, greatest(first, job.seq - 1000, 1) - 1), -- not over all dead rows behind a job that another session holds
                setval({fast_path}, {now} * 4096 + 2048 + job.slot);
    end if;
{end if}
    return job.row;
end $fn$;

$$;

-- Taking jobs: skip maps show where they may be, and batches continue where the last one ended.

insert into _template (kind, name, body) select 'queue', 'skip map', $$

-- {skip_map} writes a new skip map if that brings something. It reads the jobs that are there, within the
-- ranges of the last one. Between them nothing is left, as far as the sequence had come when the last one
-- was written. Its xid lies between the drawing of such a seq and the snapshot of the new one
-- (docs/decisions/0003). So the transaction that drew it has ended, or is in the snapshot's list and
-- pending from now on. An xid of the future is another cluster's, which a restored skip map waits for: it
-- has ended as well.
--
-- It locks nothing: a job whose taking is not committed is still seen. It goes from older segments to younger
-- ones, as jobs do that are carried over, so it misses none that moves meanwhile.
create or replace function {skip_map}(in_group text, in_priority smallint, bound bigint default null) returns {schema}._skip_map
language plpgsql volatile as $fn$ declare
    b     constant record := {schema}._begin_skip_map({id}, {lifo}, {ring}, {seq}, in_group, in_priority, bound);
    slots constant smallint[] := (b.new).slots;
    here  smallint;
    seqs  bigint[] := '{}';
    found int8multirange;
    late  int8multirange := '{}';
begin
    for i {older_first} loop
        here := slots[i];
{segments here}
        seqs := seqs || array(
            select v.seq from (select unnest((b.was).lo) as lo, unnest((b.was).hi) as hi) r cross join lateral (
                select t.seq from {segment} t
                 where t.group_key = in_group and t.priority = in_priority and t.seq >= r.lo and t.seq <= least(r.hi, (b.new).base)
                 order by t.seq {dir} limit b.most) v limit b.most);
        if b.ended <> '{}' then
            select case when count(*) <= 100 then range_agg(int8range(t.seq, t.seq, '[]')) else int8multirange(int8range(min(t.seq), max(t.seq), '[]')) end into found
              from unnest(b.ended) x cross join lateral (
                select l.seq, l.group_key, l.priority from {segment} l where l.xid = x offset 0) t -- by xid: a planner might prefer the other index
             where t.group_key = in_group and t.priority = in_priority;
            late := late + coalesce(found, '{}');
        end if;
{end}
    end loop;
    return {schema}._end_skip_map({lifo}, {ring}, {seen}, b.was, b.new, b.snap, b.most, seqs, late);
end $fn$;

$$;

-- _begin_skip_map returns the newest skip map of a group and priority, and the beginning of the next one. That has the seq (base) up to which no
-- job can appear in between, and which segments to read. Its xid is null if it may not note how far the sequence has come (seen).
-- most is how many seqs to read, ended which transactions of the last one have ended. If nothing has come since, and all is gone, there are
-- no segments to read. The snapshot comes first, then the list of segments: what the one sees is in the other.
create or replace function _begin_skip_map(queue int, lifo boolean, ring regclass, seq regclass, in_group text, in_priority smallint, bound bigint,
                                           out was _skip_map, out new _skip_map, out snap pg_snapshot, out most int, out ended xid8[])
language plpgsql volatile set search_path from current as $$ begin
    most := case width_bucket(random(), array[0.02, 0.3]) when 0 then 2048 when 1 then 64 else 1 end; -- one is enough while jobs go in order
    new.xid := case when bound is not null or pg_current_xact_id_if_assigned() is null then '0'::xid8 end;
    new.seen := coalesce(bound, pg_sequence_last_value(seq), 0);
    new.group_key := in_group;
    new.priority := in_priority;
    was := _newest_skip_map(queue, in_group, in_priority);
    if was.n is null then
        was.queue := queue;
        was.base := 0;
        was.lo := '{0}';
        was.hi := '{9223372036854775806}';
        was.seen := 0;
        was.xid := '0';
        was.turn := -1;
        was.pending := '{}';
    end if;
    snap := pg_current_snapshot();
    new.turn := pg_sequence_last_value(ring);
    if was.lo[1] > new.seen and cardinality(was.lo) = 1 and was.pending = '{}' and was.seen = new.seen and was.turn = new.turn then
        new.slots := '{}';
        return;
    end if;
    new.slots := case when new.turn = was.turn then was.slots else _listed_slots(queue, lifo, ring) end;
    -- A skip map of this very transaction bounds nothing yet. Its xid has not ended, and one before
    -- it may be missing from the snapshot's list for being the highest of all.
    new.base := case when was.xid < pg_snapshot_xmax(snap) then was.seen else was.base end;
    ended := array(select x from unnest(was.pending) x where pg_visible_in_snapshot(x, snap) or x >= pg_snapshot_xmax(snap));
end $$;

-- _end_skip_map writes the next skip map: seqs are those of up to most jobs, late the ranges of those whose transactions have ended since. It
-- returns the last one if nothing has changed, and where the list of segments, or a kept snapshot, may not show all jobs.
create or replace function _end_skip_map(lifo boolean, ring regclass, seen regclass, was _skip_map, new _skip_map, snap pg_snapshot, most int, seqs bigint[], late int8multirange) returns _skip_map
language plpgsql volatile set search_path from current as $$ declare
    no_xid constant boolean := new.xid is not null;
    gone   int8multirange := int8multirange(int8range(0, 9223372036854775807)) - (select range_agg(int8range(i.lo, i.hi, '[]')) from unnest(was.lo, was.hi) i(lo, hi));
begin
    if new.slots = '{}' then return was; end if;
    if cardinality(new.slots) > 1 then
        seqs := array(select s from unnest(seqs) s order by case when lifo then -s else s end limit most);
    end if;
    new.pending := array(select x from unnest(was.pending) x where not (pg_visible_in_snapshot(x, snap) or x >= pg_snapshot_xmax(snap))
                         union
                         select x from pg_snapshot_xip(snap) x where new.base = was.seen and x < was.xid order by x);
    if not no_xid then -- it was drawn before the sequence was read, and bounds nothing: _refresh will see to it
        new.seen := was.seen;
        perform setval(_end_skip_map.seen, pg_sequence_last_value(_end_skip_map.seen) | 1);
    end if;
    gone := gone + int8multirange(case when cardinality(seqs) < most then int8range(0, new.base, '[]')
                                       when lifo then int8range(seqs[most], new.base, '[]')
                                       else int8range(0, seqs[most], '[]') end)
            - coalesce((select range_agg(int8range(s, s, '[]')) from unnest(seqs) s), '{}') - late;
    select coalesce(range_agg(g.r), '{}') into gone
      from (select r from unnest(gone) r where lower(r) = 0 or upper(r) - lower(r) > 64
             order by lower(r) = 0 desc, upper(r) - lower(r) desc limit 64) g;
    select array_agg(lower(r) order by i), array_agg(upper(r) - 1 order by i) into new.lo, new.hi
      from (select r, case when lifo then -lower(r) else lower(r) end as i from unnest(int8multirange(int8range(0, 9223372036854775807)) - gone) r) r;
    if new.seen = was.seen and new.turn = was.turn and new.lo = was.lo and new.hi = was.hi and new.pending = was.pending then
        return was;
    end if;
    -- A list from before the ring moved on misses what was carried over to a segment that is not on it. So does a snapshot that is
    -- kept, and from before a segment left.
    if pg_sequence_last_value(ring) <> new.turn
       or current_setting('transaction_isolation') <> 'read committed' and not exists (select from _segment s where s.queue = was.queue and s.turn = new.turn / 1024) then
        was.slots := new.slots;
        return was;
    end if;
    insert into _skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
    values (was.queue, new.base, new.seen, case when no_xid then pg_current_xact_id() else was.xid end, new.turn, new.priority, new.group_key, new.lo, new.hi, new.pending, new.slots)
    returning * into new;
    return new;
end $$;

insert into _template (kind, name, body) select 'queue', 'take', $$
-- {take} deletes up to n jobs of a group and returns them as rows of the queue, by priority and in order. A batch continues where the last one ended;
-- otherwise the skip map shows where jobs may be. It locks rows that are free, segment by segment as listed, and waits for none. due decides whether to
-- write a new skip map; null: now and then. upkeep: the queue's maintenance may be due. admitted: null
-- if the jobs end with it; for a claim, whose acks look at barriers, whether it has asked _admit, which knows of pauses and limits.
create or replace function {take}(n int, in_group text, due boolean default null, upkeep boolean default true, admitted boolean default null) returns setof {queue}
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off
set jit = off set plan_cache_mode = force_generic_plan as $fn$ declare
    flags constant bigint := pg_sequence_last_value({flags}) & case when admitted then ~({watched} | {held}) when not admitted then ~{held} else -1 end;
    fresh constant boolean := pg_current_xact_id_if_assigned() is null;
    path  bigint; pos bigint; most int; here smallint; got int; m record; todo int := n; p int := 0;
begin
    if (n between 1 and 10000) is not true then
        raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call it again for more';
    end if;
    -- A batch that continues where the last one ended does not step over what others hold. Nor does a claim of one
    -- job; a dequeue of one has tried that.
    if (n > 1 or due is not false) and in_group = '' and flags = {plain} and not {lifo} then
        loop
            path := pg_sequence_last_value({fast_path}) - {now} * 4096;
            exit when due or path not between 0 and 2047;
            if path < 1024 then -- see {scan}
                path := path + 1024;
                perform setval({fast_path}, {now} * 4096 + path);
            end if;
            pos := pg_sequence_last_value({next});
            most := least(todo, pg_sequence_last_value({seq}) - pos); -- else the next jobs would come after those behind them
            exit when (most > 0) is not true;
            pos := setval({next}, pos + most) - most;
{segments path 1024}
            return query with d as (delete from {segment} t where t.ctid = any (array(
                select t.ctid from {segment} t
                 where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + 2 * todo and ({alone} or t.key is null and admitted is not null)
                 order by t.seq limit todo for update skip locked)) returning t.*)
            select t.* from d t order by t.seq;
{end}
            get diagnostics got = row_count;
            todo := todo - got;
            -- Nothing was at these positions: their jobs are elsewhere, and come next.
            if got = 0 and pg_sequence_last_value({next}) = pos + most then pos := setval({next}, pos); end if;
            exit when todo <= 0 or got = 0;
        end loop;
    end if;
    -- A new skip map pays once for this many jobs, where much may be gone.
    due := coalesce(due, random() < case when n < 16 then n::float8 / '64' else '0.125' end);
    if todo > 0 and flags <> {plain} then
        p := -16;
        todo := case when flags & {watched} = 0 or {schema}._may_dequeue({id}, in_group) then todo else 0 end;
        if todo > 0 and flags & ({keyed} | {dated}) <> 0 then
            return query select t.* from {take_keyed}(n, in_group, admitted is not null) t; -- also of a claim that began before the first key
            todo := 0;
        end if;
    end if;
    while todo > 0 and p < 16 loop
        if p = 0 or flags & (1::bigint << (16 + p)) <> 0 then
{leaf of skip_map}
            select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from {leaf} k
             where k.queue = {id} and k.group_key = in_group and k.priority = p order by k.n desc limit 1;
{end}
            if m.n is null or due and pg_sequence_last_value({seq}) - m.lo[1] > 256
               or cardinality(m.pending) > 0 and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot()) or x >= pg_snapshot_xmax(pg_current_snapshot())) then
                select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from {skip_map}(in_group, p::smallint) k;
            end if;
            if m.turn <> pg_sequence_last_value({ring}) then m.slots := {slots}; end if;
            -- With mode 2 less than a second ago few jobs waited: the call that found that sets the registers anew itself.
            if path is not null and todo = n and pg_sequence_last_value({seq}) - m.lo[1] >= 512 and fresh
               and not (path between -40 * 4096 and 4095 and (path + 40 * 4096) % '4096' >= 2048) then
                perform {schema}._reposition({name}, n, m.lo[1], m.slots);
            end if;
            -- The segment is named, so that the statement opens one table and not the whole ring. All
            -- rows are locked first and deleted then: locked one by one between deletes, they make
            -- workers who go over the same rows meet at each.
            foreach here in array m.slots loop
{segments here}
                return query with d as (delete from {segment} t where t.ctid = any (array(
                    select v.ctid from (select unnest(m.lo) as lo, unnest(m.hi) as hi) i cross join lateral (
                        select t.ctid from {segment} t
                         where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and ({alone} or t.key is null and admitted is not null)
                         order by t.seq {dir} limit todo for update skip locked) v limit todo)) returning t.*)
                select t.* from d t order by t.seq {dir};
{end}
                get diagnostics got = row_count;
                todo := todo - got;
                exit when todo <= 0;
            end loop;
        end if;
        p := case when flags = {plain} then 16 else p + 1 end;
    end loop;
    {maintain_if_due, upkeep}
end $fn$;

$$;

-- _listed_slots lists the segments that may hold jobs, in the order in which to scan them. A
-- statement that takes jobs looks into no other: its transaction may last long, and segments it has
-- looked into cannot be truncated until it ends.
create or replace function _listed_slots(queue int, lifo boolean, ring regclass) returns smallint[]
language plpgsql volatile set search_path from current as $$ begin
    return (
    select case when s.list @> array[s.here] then s.list
                when lifo then s.here || s.list else s.list || s.here end
      from (select (pg_sequence_last_value(ring) % 1024)::smallint as here,
                   coalesce(array_agg(g.slot order by case when lifo then -g.turn else g.turn end), '{}') as list
              from _segment g where g.queue = _listed_slots.queue and g.retired is null) s);
end $$;

-- _newest_skip_map returns the newest skip map of a group and priority.
create or replace function _newest_skip_map(queue int, group_key text, priority smallint) returns _skip_map
language plpgsql volatile set search_path from current as $$ declare m _skip_map;
begin
    if pg_sequence_last_value('_skip_map_slot') % 2 = 0 then
        select * into m from _skip_map_0 k where k.queue = _newest_skip_map.queue and k.group_key = _newest_skip_map.group_key and k.priority = _newest_skip_map.priority order by k.n desc limit 1;
    else
        select * into m from _skip_map_1 k where k.queue = _newest_skip_map.queue and k.group_key = _newest_skip_map.group_key and k.priority = _newest_skip_map.priority order by k.n desc limit 1;
    end if;
    return m;
end $$;

-- _reposition writes to the registers where the next batch begins: at the first free job. {take} calls it before it
-- goes by the skip map, and takes the jobs that are there itself.
create or replace function _reposition(queue text, n int, low bigint, slots smallint[]) returns void
language plpgsql volatile set search_path from current as $$ declare
    path constant regclass := _q(format('_%s.fast_path', queue))::regclass;
    next constant regclass := _q(format('_%s.next', queue))::regclass;
    was  constant bigint := pg_sequence_last_value(path);
    came constant bigint := pg_sequence_last_value(_q(format('_%s.seq', queue))::regclass);
    now  constant bigint := extract(epoch from clock_timestamp()) * 40;
    pos  bigint := pg_sequence_last_value(next);
    free bigint;
    here smallint;
begin
    if now - was / 4096 < 40 and was % 4096 < 2048 then -- others need not take the slow path meanwhile
        perform setval(path, now * 4096 + 1024 + was % 1024);
    end if;
    if pos > came then
        pos := 0; -- drawn when there was nothing left
    end if;
    foreach here in array slots loop
        execute format($sql$
            select t.seq from %s t
             where t.group_key = '' and t.priority = 0 and t.seq >= $1 and t.key is null order by t.seq limit 1 for update skip locked$sql$,
            _q(format('_%s.%s', queue, here))) into free using low;
        exit when free is not null;
    end loop;
    if free > pos - n and came - free >= 64 + n then -- else another session is just coming to the positions it has drawn, or it appeared behind
        perform setval(next, greatest(pos, free + n - 1)), setval(path, (extract(epoch from clock_timestamp()) * 40)::bigint * 4096 + 1024 + here); -- beyond what this call takes
    else
        perform setval(path, 0);
    end if;
end $$;

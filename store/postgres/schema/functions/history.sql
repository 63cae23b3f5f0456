-- The history of done jobs, in queues that keep it (set_queue).
--
-- A queue's history is a ring of six segments behind one table, _NAME.done, which is there once it has been asked for. Rows
-- are only added, and a segment is truncated as a whole; so there is no index and nothing for a vacuum, and a
-- pinned snapshot holds up nothing. In a queue that keeps history, {ack} and {claim} write to it. They write one row for
-- the jobs of a claim that one call ended, of one job in plain columns, of several in arrays. A row a job would cost a
-- batch half again.

-- _make_history makes the ring of a queue's kept jobs. Its register, done_turn, holds 8 * the time since which the
-- current segment is written to, in ms, + its slot.
create or replace function _make_history(q _queue) returns void
language plpgsql set search_path from current as $$ declare
    ring constant text := _q(format('_%s.done', q.name));
    turn constant text := _q(format('_%s.done_turn', q.name));
begin
    perform _make_register(turn, 8 * (extract(epoch from clock_timestamp()) * 1000)::bigint);
    execute format($ddl$
        create table %1$s (
            slot smallint not null default (pg_sequence_last_value(%2$L) %% 8)::smallint, finished_at timestamptz not null default clock_timestamp(),
            claimed_at timestamptz, -- null: an older version claimed it
            worker text not null, group_key text not null, priority smallint not null, key text,
            id bigint, -- null: several, in arrays
            attempt integer, created_at timestamptz, failures jsonb, report jsonb,
            jobs bigint[], attempts integer[], created timestamptz[], failed jsonb[],
            kind text, -- the header penstock-kind
            kinds text[]
        ) partition by list (slot);
        alter table %1$s alter jobs set storage plain, alter attempts set storage plain, alter created set storage plain -- 255 fit a page
        $ddl$, ring, turn);
    for slot in 0 .. 5 loop
        execute format('create table %s partition of %s for values in (%s) with (autovacuum_enabled = false, toast.autovacuum_enabled = false)',
                       _q(format('_%s.done_%s', q.name, slot)), ring, slot);
    end loop;
    update _queue x set done_since = array_fill('-infinity'::timestamptz, '{6}') where x.id = q.id;
end $$;

-- _turn_history gives back kept jobs that are older than keep_done allows, all of them if the queue keeps none. It
-- moves on to the next segment once the current one has a quarter of that time, or a sixth of the bytes. When a segment
-- begins it locks the queue's row to note that, or leaves it to the next call. A TRUNCATE waits 20 ms for its lock, and
-- a segment that a pg_dump has locked is not asked for.
create or replace function _turn_history(q _queue) returns void
language plpgsql volatile set search_path from current as $$ declare
    turn     constant regclass := _q(format('_%s.done_turn', q.name))::regclass;
    state    constant bigint := pg_sequence_last_value(turn);
    here     constant int := state % 8; following constant int := (here + 1) % 6;
    now_ms   constant bigint := floor(extract(epoch from clock_timestamp()) * 1000); now constant timestamptz := to_timestamp(now_ms / 1000.0);
    began    timestamptz := to_timestamp(state / 8 / 1000.0);
    segments constant regclass[] := array(select _q(format('_%s.done_%s', q.name, s))::regclass from generate_series(0, 5) s);
    crowded  constant boolean := pg_table_size(segments[here + 1]) >= q.keep_done_bytes / 6;
    slot     int;
begin
    if not pg_try_advisory_xact_lock('_queue'::regclass::oid::int, q.id) or state <> pg_sequence_last_value(turn) then return; end if; -- as _maintain_ring
    select * into q from _queue x where x.id = q.id;
    -- Noted with the first look at it: the register moves even if its transaction fails. What seems to be later than now was
    -- before the clock was set back.
    if q.done_since[here + 1] <> began or now < any (q.done_since) then
        q.done_since[here + 1] := began;
        q.done_since := array(select least(s, now) from unnest(q.done_since) with ordinality u(s, n) order by n);
        update _queue x set done_since = q.done_since where x.id = (select y.id from _queue y where y.id = q.id for no key update skip locked);
        if not found then
            return;
        elsif began > now then
            began := now;
            perform setval(turn, 8 * now_ms + here);
        end if;
    end if;
    for slot in select s from generate_series(0, 5) s where pg_relation_size(segments[s + 1]) > 0 loop
        if q.keep_done is null
           or slot <> here and (q.done_since[(slot + 1) % 6 + 1] < now - q.keep_done or slot = following and crowded) then -- it ended when the next one began
            if not _is_dumped(segments[slot + 1]) then perform _truncate(segments[slot + 1]::text, 'false'); end if;
        end if;
    end loop;
    if (crowded or began < now - q.keep_done / 4) and pg_relation_size(segments[here + 1]) > 0 and pg_relation_size(segments[following + 1]) = 0 then
        perform setval(turn, 8 * now_ms + following);
    end if;
end $$;

-- _done_jobs returns up to most kept jobs, the latest first: those behind a position, or those with given ids. It also
-- returns the position of the next page, null at the end. Jobs of a page of a segment were done at about the same time,
-- so it reads pages from the last one back, at most 2,000 a call.
create or replace function _done_jobs(queue int, most int, before text, ids bigint[]) returns jsonb
language plpgsql volatile set search_path from current
set enable_seqscan = off set jit = off as $$ declare
    q       constant _queue := (select q from _queue q where q.id = queue);
    at      constant bigint[] := string_to_array(before, '.'); -- 8 * the segment's beginning + its slot, page, line and place
    state   bigint;
    slot    int;
    ring    bigint;
    there   boolean := before is null; -- what comes before the position was listed
    segment text;
    upto    bigint;
    done    jsonb := '[]';
    more    jsonb;
    looked  int := 0;
begin
    if (most between 1 and 10000) is not true then
        raise exception 'up to % jobs cannot be listed', coalesce(most::text, 'null') using errcode = '22023', hint = 'give 1 to 10000';
    elsif before is not null and (cardinality(at) = 4 and array_position(at, null) is null) is not true then
        raise exception 'there is no position %', quote_literal(before) using errcode = '22023', hint = 'give the one that came with the last job that was listed';
    elsif q.done_since is null then
        return jsonb_build_object('jobs', done);
    end if;
    state := pg_sequence_last_value(_q(format('_%s.done_turn', q.name))::regclass);
    for i in 0 .. 5 loop
        slot := (state % 8 + 6 - i) % 6;
        ring := case when i = 0 then state when q.done_since[slot + 1] > '-infinity' then 8 * round(extract(epoch from q.done_since[slot + 1]) * 1000) + slot else 0 end;
        there := there or ring = at[1]; -- if none is, it was given back, with all that is older
        continue when not there;
        segment := _q(format('_%s.done_%s', q.name, slot));
        upto := pg_relation_size(segment) / current_setting('block_size')::int;
        if ring = at[1] then upto := least(upto, at[2] + 1); end if;
        while upto > 0 loop
            if looked >= 2000 then
                return jsonb_build_object('jobs', done, 'next', format('%s.%s.0.0', ring, upto));
            end if;
            execute format($sql$
                select jsonb_agg(to_jsonb(x) order by x.page desc, x.line desc, x.place desc)
                  from (select $5 || '.' || (t.ctid::text::point)[0] || '.' || (t.ctid::text::point)[1] || '.' || j.place as position, -- a tid is written as a point is
                               (t.ctid::text::point)[0]::bigint as page, (t.ctid::text::point)[1]::int as line, j.place,
                               j.id, j.kind, t.key, t.group_key, t.priority, j.attempt, j.created_at, t.claimed_at, t.finished_at, t.worker, j.failures, t.report
                          from %s t cross join lateral (
                               select t.id, t.attempt, t.created_at, t.failures, t.kind, 1::bigint where t.id is not null
                               union all
                               select u.* from unnest(t.jobs, t.attempts, t.created, t.failed, t.kinds) with ordinality u) j(id, attempt, created_at, failures, kind, place)
                         where t.ctid >= $1 and t.ctid < $2
                           and ($3 is null or (t.ctid, j.place) < ($3, $4)) and ($6 is null or j.id = any ($6))
                         order by t.ctid desc, j.place desc limit $7) x$sql$, segment)
               into more using format('(%s,0)', greatest(upto - 8, 0))::tid, format('(%s,0)', upto)::tid,
                               case when ring = at[1] then format('(%s,%s)', at[2], at[3])::tid end, at[4], ring::text, ids, most - jsonb_array_length(done);
            done := done || coalesce(more, '[]');
            if jsonb_array_length(done) >= most then
                return jsonb_build_object('jobs', done, 'next', done -> -1 -> 'position');
            end if;
            upto := upto - 8;
            looked := looked + 8;
        end loop;
    end loop;
    return jsonb_build_object('jobs', done);
end $$;

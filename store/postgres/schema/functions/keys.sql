-- Keys: at most one job of a key runs at a time, in the order of their ids.

insert into _template (kind, name, body) select 'queue', 'key', $$

-- {busy} returns whether a job of a key must wait: one of the key runs, or one with a smaller id must
-- still run. Jobs that are only delayed do not count. It looks where jobs come from before it looks
-- where they go to, so it sees one that moves meanwhile.
--
-- noted are the keys with a beginning, see _noted. A caller that gives them has the key's lock, and is about to lease the job, or to move it.
create or replace function {busy}(in_key text, in_id bigint, slots smallint[], noted text[] default null) returns boolean
language plpgsql volatile as $fn$ declare first bigint := 0; seen bigint := 0; ended bigint := 0; here smallint; leaf int; yes boolean; -- where to begin
begin
    if noted is null then
{leaf of skip_map}
        yes := exists (select from {leaf} k where k.queue = -{id} and k.group_key = in_key);
{end}
    end if;
    if yes or in_key = any (noted) then
        select * into first, seen, ended from {schema}._where_to_begin({id}, in_key, case when noted is not null then in_id end);
    end if;
    foreach leaf in array {listed lease} loop
{leaf of lease}
        yes := exists (select from {leaf} l where l.queue = {id} and l.key = in_key and l.lease > ended);
{end}
        if yes then return true; end if;
    end loop;
    foreach leaf in array {listed scheduled} loop
{leaf of scheduled}
        yes := exists (select from {leaf} l where l.queue = {id} and l.key = in_key and l.id >= first and l.id < in_id and (l.attempt <> 0 or l.due = 'infinity'));
{end}
        if yes then return true; end if;
    end loop;
    for i {older_first} loop
        exit when yes; here := slots[i];
{segments here}
        yes := exists (select from {segment} r where r.key = in_key and r.id >= first and r.id < in_id) or exists (select from {segment} r where r.key = in_key and r.seq > seen and r.id is not null and r.id + 0 < least(first, in_id))
            or exists (select from {segment} r where r.key = in_key and r.id is null and r.seq >= first and r.seq < in_id);
{end}
    end loop;
    return yes;
end $fn$;

-- {candidates} reads up to most jobs of a segment behind a position. It returns those whose key is not in skip, and of all: how many, and from where to where.
create or replace function {candidates}(here int, in_group text, p int, lo bigint[], hi bigint[], pos bigint, most int, skip text[],
                                        out ctids tid[], out seqs bigint[], out ids bigint[], out keys text[], out got int, out before bigint, out upto bigint)
language plpgsql volatile as $fn$ begin
{segments here}
    select array_agg(v.ctid) filter (where v.free), array_agg(v.seq) filter (where v.free), array_agg(v.id) filter (where v.free), array_agg(v.key) filter (where v.free),
           count(*), case when {lifo} then max(v.seq) + 1 else min(v.seq) - 1 end, case when {lifo} then min(v.seq) else max(v.seq) end
      into ctids, seqs, ids, keys, got, before, upto
      from (select v.*, (v.key <> all (skip)) is not false as free from (select unnest(lo) as lo, unnest(hi) as hi) i cross join lateral (
                select t.ctid, t.seq, coalesce(t.id, t.seq) as id, t.key from {segment} t
                 where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.seq {beyond} pos
                 order by t.seq {dir} limit most) v limit most) v;
{end}
end $fn$;

-- {pull} deletes jobs at their places in a segment, but for those that another session has locked, and returns them in order.
create or replace function {pull}(here int, ctids tid[], seqs bigint[]) returns setof {queue}
language plpgsql volatile as $fn$ begin
{segments here}
    return query with d as (delete from {segment} t where t.ctid = any (array(
        select t.ctid from {segment} t where t.ctid = any (ctids) and t.seq = any (seqs) for update skip locked)) returning t.*)
    select * from d order by d.seq {dir};
{end}
end $fn$;

-- {take_keyed} is {take} where jobs have keys or deadlines, or hold barriers. The transaction that takes a job of a key holds the
-- key's lock until its end, and has a lease from then on. So a statement that begins with the lock
-- held sees whether one runs, and whether one with a smaller id must still run. Jobs that must wait
-- are moved to _scheduled, at the cost of one move each.
--
-- Of a priority it reads a thousand jobs from the first one on, and then four thousand from another place (_next_place), and on from the
-- first thousand behind the last.
create or replace function {take_keyed}(n int, in_group text, leasing boolean) returns setof {queue}
language plpgsql volatile as $fn$ declare
    flags  constant bigint := pg_sequence_last_value({flags});
    bound  constant bigint := case when pg_current_xact_id_if_assigned() is null then coalesce(pg_sequence_last_value({seq}), 0) end; -- of the skip maps of all priorities
    m      {schema}._skip_map;
    list   smallint[];  -- the segments it goes through
    at     int;         -- which of them
    pos    bigint; before bigint; upto bigint;
    begun  int; near bigint; edge bigint; drawn bigint; first boolean; -- see _next_place
    seen   int; mark int; -- jobs that were read, and then; a key that must wait counts as four more
    most   int;         -- jobs to read at once
    todo   int := n; got int;
    locked int := 0;    -- keys
    moved  int := 0; had int; -- jobs moved to _scheduled, and before
    ended  int := 0; gone int; -- jobs whose deadline had passed
    part   smallint; maps bigint; snap pg_snapshot; -- the segment of these, see _note_keys; skip maps up to that number were made before the snapshot
    ctids  tid[]; seqs bigint[]; ids bigint[]; keys text[]; -- of candidates
    chosen bigint[]; run bigint[]; -- places in these
    skip   text[] := '{}'; busy text[]; noted text[]; turns bigint[];
begin
    for p in -16 .. 15 loop
        continue when flags & (1::bigint << (16 + p)) = 0;
        m := {schema}._newest_skip_map({id}, in_group, p::smallint);
        if m.n is null or m.turn < 0 or random() * 64 < n
           or m.pending <> '{}' and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot()) or x >= pg_snapshot_xmax(pg_current_snapshot())) then
            m := {skip_map}(in_group, p::smallint, bound);
        end if;
        if m.turn <> pg_sequence_last_value({ring}) then m.slots := {slots}; end if;
        list := m.slots;
        at := 1;
        pos := {start};
        near := null;
        most := greatest(64, least(n, 1000));
        seen := -n;
        had := moved;
        while todo > 0 and seen < 5000 loop
            exit when at > cardinality(list) and (near is null or drawn = near);
            if at > cardinality(list) or near is null and seen >= 1000 then
                select * into at, pos, begun, near, edge, drawn, first
                  from {schema}._next_place({lifo}, {seq}, {next}, m.lo, m.hi, cardinality(list), seen >= mark + 64, at, pos, begun, near, edge, drawn, first);
                mark := seen;
            end if;
            select * into ctids, seqs, ids, keys, got, before, upto from {candidates}(list[at], in_group, p, m.lo, m.hi, pos, most, skip);
            if got = 0 then
                at := at + 1; pos := {start};
                continue;
            end if;
            if flags & {late} <> 0 and ended < 5000 then
                gone := {schema}._end_late({id}, {name}, list[at], ctids, seqs);
                if gone > 0 then
                    ended := ended + gone;
                    most := least(2 * most, 500);
                    pos := before;
                    continue;
                end if;
            end if;
            select array_agg(c.i), array_agg(distinct c.key) filter (where c.key is not null) into chosen, busy
              from (select c.* from (select k.key, k.i, ids[k.i] as id from unnest(keys) with ordinality k(key, i) offset 0) c
                     where case when c.key is null then true
                                when locked >= 500 then false
                                when not leasing and {busy}(c.key, c.id, m.slots) then false
                                else pg_try_advisory_xact_lock(hashtextextended(c.key, {id})) end limit todo) c;
            pos := coalesce(seqs[chosen[todo]], upto);
            locked := locked + coalesce(cardinality(busy), 0);
            seen := seen + got - 4 * cardinality(skip);
            skip := skip || array(select distinct c.key from unnest(keys) with ordinality c(key, i)
                                   where c.i <= coalesce(chosen[todo], cardinality(keys)) and c.key is not null and (chosen is null or c.i <> all (chosen))
                                     and (leasing or not {lifo})); -- the last job of a key comes before the one that may run
            seen := seen + 4 * cardinality(skip);
            if chosen is null then
                most := least(2 * most, 500);
                continue;
            end if;
            run := chosen;
            if busy is not null then -- a new statement: it sees what ended before the locks were had
                noted := {schema}._noted({id}, busy);
                loop -- until no ring has turned meanwhile
                    turns := array[pg_sequence_last_value({ring}), pg_sequence_last_value({lease_slot}), pg_sequence_last_value({scheduled_slot})];
                    maps := pg_sequence_last_value({skip_map_n}); snap := pg_current_snapshot();
                    if m.turn <> turns[1] then m.turn := turns[1]; m.slots := {slots}; end if;
                    -- A claim asks for the first job of each key that was read. If that has ended meanwhile, the others must not wait for it.
                    select array_agg(c.i order by c.i) into run
                      from (select *, min(id) over (partition by key) as first from unnest(ids, keys) with ordinality u(id, key, i) where key is null or key = any (busy)) c
                     where case when c.key is null or not leasing then c.i = any (chosen) else c.id = c.first end and (c.key is null or not {busy}(c.key, c.id, m.slots, noted));
                    exit when turns = array[pg_sequence_last_value({ring}), pg_sequence_last_value({lease_slot}), pg_sequence_last_value({scheduled_slot})];
                end loop;
                perform {schema}._note_keys({id}, in_group, p, maps, snap, array_agg(keys[i]), array_agg(ids[i])) from unnest(run) i where keys[i] is not null and hashint8(ids[i]) % 64 = 0 having count(*) > 0;
                -- Of a key that runs now the others stay where they are. Of one that cannot run, a
                -- claim moves them: a dequeue may be part of a long transaction, and should lock no
                -- key without need.
                busy := array(select unnest(busy) except select keys[i] from unnest(run) i);
                skip := skip || array(select distinct keys[i] from unnest(run) i where keys[i] is not null);
                if busy <> '{}' and leasing then
                    insert into {schema}._scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload, failures)
                    select coalesce(d.id, d.seq), {id}, d.attempt, 'infinity', d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures
                      from {pull}(list[at], array(select ctids[i] from unnest(keys) with ordinality u(key, i) where key = any (busy)), seqs) d;
                    get diagnostics got = row_count;
                    moved := moved + got;
                    most := case when 2 * got >= most then least(2 * most, 500) else greatest(most / 2, least(todo, 500), 8) end;
                    pos := case when moved <= 1000 and got > 0 then before else pos end;
                end if;
                skip := skip || case when leasing and moved <= 1000 then '{}' else busy end; -- the next call continues with it
            end if;
            if run is not null then
                return query select d.* from {pull}(list[at], array(select ctids[i] from unnest(run) i), seqs) d
                 where leasing or (d.headers ->> 'penstock-holds') is null or {schema}._count_holders({id}, array[d.headers], -1, 0);
                get diagnostics got = row_count;
                todo := todo - got;
                if not leasing and busy is not null then
                    perform {schema}._promote({id}, array(select distinct keys[i] from unnest(run) i where keys[i] is not null));
                end if;
            end if;
        end loop;
        if moved - had >= 64 or ended >= 64 then -- much is gone: the next call makes a skip map, as turn shows
            insert into {schema}._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
            values ({id}, m.base, m.seen, m.xid, -1, p, in_group, m.lo, m.hi, m.pending, list);
        end if;
        exit when todo <= 0;
    end loop;
end $fn$;

$$;

-- _where_to_begin returns where a search for jobs of a key begins: while a snapshot is pinned, it would step over the entries of all those that have ended.
-- Rows of _skip_map say that, of which the queue is negative and group_key is the key. The newest one is true until a transaction in pending ends, or the ring of skip
-- maps turns:
--
--   base  no job of the key has a smaller id, and none will be enqueued
--   seen  but one may come back to the ring: it has a greater seq then
--   turn  no lease of the key up to this number is left
--   lo    the register of skip maps when it was written
--
-- lowest is the id of a job that will be leased, or moved to _scheduled.
create or replace function _where_to_begin(queue int, key text, lowest bigint, out id bigint, out seen bigint, out lease bigint)
language plpgsql volatile set search_path from current as $$ declare m _skip_map := _newest_skip_map(-queue, key, '0');
begin
    if m.lo[1] is distinct from pg_sequence_last_value('_skip_map_slot') then m := null; end if; -- the ring has turned: others may have begun elsewhere, without a note
    id := case when m.n is null or cardinality(m.pending) > 0 and exists (
                    select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot()) or x >= pg_snapshot_xmax(pg_current_snapshot())) then 0 else m.base end;
    lease := case when m.turn >> 20 <= pg_sequence_last_value('_lease_n') then m.turn else 0 end; -- else that register was damaged
    seen := m.seen;
    if lowest is not null then
        id := case when current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then least(lowest, id) else 0 end; -- others may have begun elsewhere since
        if id < m.base or lease < m.turn then -- nor may it hold later, when this cluster comes to an xid of another one, or the register to its number
            insert into _skip_map (queue, n, group_key, priority, base, seen, turn, pending, xid, lo, hi, slots, slot)
            values (-queue, greatest(nextval('_skip_map_n'), m.n + 1), key, 0, id, m.seen, lease, m.pending, '0', m.lo, '{}', '{}', m.slot); -- of no use if the ring has turned meanwhile
        end if;
    end if;
end $$;

-- _note_keys writes where to begin with keys whose first jobs are ids, and of which none runs, as a look after the snapshot has found. It goes by skip maps
-- up to the number maps, which were made before. Jobs of transactions in flight are not covered. Few of these should end soon: it takes the newest of 16 skip maps
-- without one, or the oldest. It writes nothing where the snapshot is an old one.
create or replace function _note_keys(queue int, in_group text, p int, maps bigint, snap pg_snapshot, keys text[], ids bigint[]) returns void
language plpgsql volatile set search_path from current as $$ declare turn constant bigint := pg_sequence_last_value('_skip_map_slot'); newest _skip_map[];
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        return;
    elsif turn % 2 = 0 then
        newest := array(select k::_skip_map from _skip_map_0 k where k.queue = _note_keys.queue and k.group_key = in_group and k.priority = p and k.n <= maps order by k.n desc limit 16);
    else
        newest := array(select k::_skip_map from _skip_map_1 k where k.queue = _note_keys.queue and k.group_key = in_group and k.priority = p and k.n <= maps order by k.n desc limit 16);
    end if;
    insert into _skip_map (queue, group_key, priority, base, seen, turn, pending, xid, lo, hi, slots, slot)
    select -queue, u.key, 0, least(u.id, m.base + 1), m.base, coalesce(pg_sequence_last_value('_lease_n'), 0) << 20 | 1048575, m.pending, '0', array[turn], '{}', '{}', turn % 2
      from (select w.* from unnest(newest) k cross join lateral (
                select k.n, k.base, array(select x from unnest(k.pending) x where not (pg_visible_in_snapshot(x, snap) or x >= pg_snapshot_xmax(snap))) as pending) w
             order by w.pending = '{}' desc, case when w.pending = '{}' then -w.n else w.n end limit 1) m
     cross join unnest(keys, ids) u(key, id);
end $$;

-- _noted returns those of some keys that have a beginning.
create or replace function _noted(queue int, keys text[]) returns text[]
language plpgsql volatile set search_path from current as $$ begin
    if pg_sequence_last_value('_skip_map_slot') % 2 = 0 then
        return array(select k from unnest(keys) k where exists (select from _skip_map_0 m where m.queue = -_noted.queue and m.group_key = k));
    end if;
    return array(select k from unnest(keys) k where exists (select from _skip_map_1 m where m.queue = -_noted.queue and m.group_key = k));
end $$;

-- _next_place returns where {take_keyed} continues: in which segment, at which of many, and behind which seq. At first it notes where the first
-- thousand end: in the segment begun, at near. There are few jobs behind edge. It continues at drawn, between the two, and first returns that this is
-- in begun. enough: many jobs were read there the last time.
--
-- The register next counts the places, as no job with a key is found by it. They are multiples of the golden ratio, modulo 1, and the segments those of
-- the root of two. So they are spread evenly, also for a caller that makes every second or third call.
create or replace function _next_place(lifo boolean, seq regclass, next regclass, lo bigint[], hi bigint[], many int, enough boolean,
                                       inout at int, inout pos bigint, inout begun int, inout near bigint, inout edge bigint, inout drawn bigint, inout first boolean)
language plpgsql volatile set search_path from current as $$ declare turn numeric;
begin
    if near is null then
        begun := at;
        near := pos;
        edge := case when lifo then lo[cardinality(lo)] - 1 else least(hi[cardinality(hi)], pg_sequence_last_value(seq)) end;
    else
        edge := case when enough then near when first then drawn else edge end; -- few are behind it, or none
    end if;
    -- Among the seqs, or the segments: jobs that were carried over are in a later one than those behind them.
    at := begun;
    drawn := near;
    if lifo and edge < near or not lifo and edge > near then
        turn := abs(nextval(next));
        at := begun + greatest(0, trunc((turn * 0.4142135623730950 % 1 * 2 - 1) * (many - begun + 1)))::int;
        first := at = begun;
        pos := case when first then near when lifo then pg_sequence_last_value(seq) + 1 else lo[1] - 1 end;
        drawn := pos + trunc(turn * 0.6180339887498949 % 1 * (edge - pos))::bigint;
    end if;
    pos := drawn;
end $$;

-- _end_late deletes and counts those of some jobs in a segment whose deadline has passed, and returns how many these were. It waits for no row.
create or replace function _end_late(queue int, name text, slot int, ctids tid[], seqs bigint[]) returns int
language plpgsql volatile set search_path from current as $$ declare gone int; keys text[]; headers jsonb[];
begin
    execute format($sql$
        with d as (
            delete from %1$s t
             where t.ctid = any (array(
                select t.ctid from %1$s t where t.ctid = any ($1) and t.seq = any ($2) and _deadline(t.headers) <= clock_timestamp() for update skip locked))
            returning t.*)
        select count(nextval($3)), array_agg(distinct d.key) filter (where d.key is not null), array_agg(d.headers) from d$sql$, _q(format('_%s.%s', name, slot)))
       into gone, keys, headers using ctids, seqs, _q(format('_%s.expired', name))::regclass;
    perform _count_holders(queue, headers, -1, 0) where gone > 0;
    if keys is not null then perform _promote(queue, keys); end if;
    return gone;
end $$;

-- _promote makes the next job of each key ready, if it only waits for its key. It leaves a key that another transaction
-- has locked to the maintenance, which is then due at once. That transaction may be putting off jobs of the key that
-- are not visible yet. A row in _scheduled with the queue's negative number names a key to look at. It also does so
-- where a kept snapshot may hide jobs.
create or replace function _promote(queue int, keys text[]) returns void
language plpgsql volatile set search_path from current as $$ declare
    mine  text[] := array(select k from unnest(keys) k where pg_try_advisory_xact_lock(hashtextextended(k, queue)));
    others constant text[] := case when current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then array(select unnest(keys) except select unnest(mine)) else keys end;
    turn  constant bigint := pg_sequence_last_value('_scheduled_slot'); leaf int;
    noted constant text[] := _noted(queue, mine);
    firsts constant bigint[] := array(select case when k = any (noted) then (_where_to_begin(queue, k, null)).id else 0 end from unnest(mine) k);
    heads bigint[]; q _queue; -- the heads of mine
begin
    if others <> '{}' then
        insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, payload)
        select hashtextextended(k, queue), -queue, 0, clock_timestamp(), clock_timestamp(), 0, '', k, '' from unnest(others) k;
        perform setval(t.done, greatest(pg_sequence_last_value(t.done) - 250, 0))
           from (select _q(format('_%s.maintained', x.name))::regclass as done from _queue x where x.id = queue) t;
    end if;
    foreach leaf in array _listed('_scheduled_slot') loop -- one that is only delayed has no place in its key yet
        if leaf = 0 then
            heads := array(select least(u.head, (select l.id from _scheduled_0 l where l.queue = _promote.queue and l.key = u.k and l.id >= u.first and (l.attempt <> 0 or l.due = 'infinity') order by l.id limit 1))
                             from unnest(mine, firsts, heads) with ordinality u(k, first, head, i) order by u.i);
        else
            heads := array(select least(u.head, (select l.id from _scheduled_1 l where l.queue = _promote.queue and l.key = u.k and l.id >= u.first and (l.attempt <> 0 or l.due = 'infinity') order by l.id limit 1))
                             from unnest(mine, firsts, heads) with ordinality u(k, first, head, i) order by u.i);
        end if;
    end loop;
    keys := mine;
    if cardinality(array_remove(heads, null)) > 0 then
        select * into q from _queue x where x.id = queue;
        execute format('select array_agg(u.k), array_agg(u.head) from unnest($1, $2) u(k, head) where u.head is not null and not %s(u.k, u.head, $3, $4)', _q(format('_%s.busy', q.name)))
           into mine, heads using mine, heads, _listed_slots(queue, q.lifo, _q(format('_%s.ring', q.name))::regclass), noted;
        foreach leaf in array case when mine is null then '{}' else _listed('_scheduled_slot') end loop
            execute format($sql$
                with w as (
                    delete from _scheduled_%1$s w where w.ctid = any (array(
                        select l.ctid from unnest($2, $3) u(k, head) cross join lateral (
                            select l.ctid from _scheduled_%1$s l where l.queue = $1 and l.key = u.k and l.id = u.head and l.due = 'infinity' offset 0) l))
                    returning w.*)
                insert into %2$s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select w.id, w.attempt, w.created_at, w.priority, w.group_key, w.key, w.headers, w.payload, w.failures from w$sql$, leaf, _q(q.name)) using queue, mine, heads;
        end loop;
    end if;
    if turn <> pg_sequence_last_value('_scheduled_slot') then perform _promote(queue, keys); end if; -- the ring may have turned meanwhile
end $$;

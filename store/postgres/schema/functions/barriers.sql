-- Barriers: jobs wait until others have ended. A job holds at most one, and waits for some. Both are headers, so they go with the job wherever it goes.
--
-- What happens to a barrier is noted in _barrier and counted when the transaction commits (_turn_barriers). So locks last for a commit, are taken
-- in one order, and the last end sees all others. Nothing is updated. The rows of a barrier, by their part:
--
--   -16 .. -1  a change of running and dead in part -1 - part; of this transaction, and dead once it has been counted
--   -17        the barrier is sealed, likewise
--   -19        changes of running in many parts, likewise
--   0 .. 15    how many jobs hold it whose id modulo 16 is that, and how many of these are dead; the row with the highest n is true
--   18         how many jobs of each part hold it, if its n is higher than that of the part's row
--   16         in running its stage: 0 made, 1 sealed, 2 open; the row with the highest n is true
--   17         a job that waits
--
-- A transaction takes the lock of each part that it changes, or of all if these are many. A transaction that ends the last running job of a part takes the lock of the barrier too,
-- and looks whether it opens. So ends of many jobs seldom wait for each other. The locks are few, so that a transaction can have all of them.
--
-- A job that waits is in _scheduled with due -infinity, so that neither time nor its key makes it ready. Once there has been a barrier the queue
-- has a flag {held}: without it nothing here is called.

insert into _template (kind, name, body) select 'queue', 'barrier', $$

-- {barrier} makes a barrier, seals one, or notes that a new job holds it, see _barrier_call.
create or replace function {barrier}(barrier bigint, job bigint) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._barrier_call({id}, barrier, job) $fn$;

$$;

-- _barrier_call is what enqueuers may do: without a number it makes a barrier, with a job that holds it, it counts that, otherwise it seals it.
create or replace function _barrier_call(queue int, barrier bigint, job bigint) returns bigint
language plpgsql volatile set search_path from current as $$
declare flags constant regclass := (select _q(format('_%s.flags', q.name))::regclass from _queue q where q.id = queue);
begin
    if barrier is null then
        perform _write_flags(flags, 68719476736), _await_others() where pg_sequence_last_value(flags) & 68719476736 = 0; -- {held}, see _fill; who reads the flag later counts
        insert into _barrier as b (barrier, queue, part, running) values (nextval('_barrier_n'), _barrier_call.queue, 16, 0) returning b.barrier into barrier;
    else
        perform _refuse_barrier(queue, barrier, job is not null);
        insert into _barrier (barrier, queue, part, running, dead) values (_barrier_call.barrier, _barrier_call.queue, case when job is null then -17 else -1 - (job & 15) end, case when job is not null then 1 end, 0);
    end if;
    return barrier;
end $$;

-- _refuse_barrier raises an error if the queue has no such barrier, or if it is open and a job is to hold it.
create or replace function _refuse_barrier(queue int, barrier bigint, holding boolean) returns void
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare s constant _barrier := (select b from _barrier b where b.barrier = _refuse_barrier.barrier and b.part = 16 order by b.n desc limit 1);
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a barrier needs the isolation level read committed, this transaction is %', current_setting('transaction_isolation') using errcode = '25001', hint = 'it does not see which jobs have ended since it began; begin it with: begin isolation level read committed';
    elsif s.queue <> _refuse_barrier.queue or s.queue is null and (barrier between 1 and pg_sequence_last_value('_barrier_n')) is not true then
        raise exception 'the queue has no barrier %', barrier using errcode = '23514', hint = 'a barrier belongs to one queue; make one with: select penstock.barrier(queue)';
    elsif holding and coalesce(s.running, 2) = 2 then -- its stage; one that is not there any more is open
        raise exception 'the barrier % is open', barrier using errcode = '23514', hint = 'seal it only after the last job that holds it, or add jobs from one that holds it and has not ended';
    end if;
end $$;

-- _barrier_state returns a barrier's stage and counts. One that is not there any more is open.
create or replace function _barrier_state(in_barrier bigint, out queue int, out stage int, out running bigint, out dead bigint)
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    select max(s.queue) filter (where p = 16), coalesce(max(s.running) filter (where p = 16), 2),
           coalesce(sum(case when a.n > coalesce(s.n, 0) then a.parts[p + 1] else s.running end) filter (where p < 16), 0), coalesce(sum(s.dead), 0) into queue, stage, running, dead
      from generate_series(0, 16) p left join lateral (select b.* from _barrier b where b.barrier = in_barrier and b.part = p order by b.n desc limit 1) s on true
      left join (select b.* from _barrier b where b.barrier = in_barrier and b.part = 18 order by b.n desc limit 1) a on true;
end $$;

-- _count_holders notes how jobs that hold barriers change these counts; jobs that hold none are left out. It returns true, to stand in a WHERE.
create or replace function _count_holders(queue int, ids bigint[], headers jsonb[], running int, dead int) returns boolean
language plpgsql volatile set search_path from current set plan_cache_mode = force_generic_plan as $$
begin
    insert into _barrier (barrier, queue, part, running, dead, parts)
    select h.barrier, _count_holders.queue, r.*
      from (select (j.h ->> 'penstock-holds')::bigint as barrier, array_agg(j.id & 15) as among, count(distinct j.id & 15) > 3 and _count_holders.dead = 0 as many
              from unnest(ids, headers) j(id, h) where j.h ->> 'penstock-holds' ~ '^[1-9][0-9]{0,17}$' group by 1) h
     cross join lateral (
        select -19, null::bigint, 0, array(select cardinality(array_positions(h.among, p)) * _count_holders.running from generate_series(0, 15) p)::bigint[] where h.many
        union all select -1 - p, count(*) * _count_holders.running, count(*) * _count_holders.dead, null from unnest(h.among) p where not h.many group by p) r;
    if found and current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        perform _refuse_barrier(queue, 0, false);
    end if;
    return true;
end $$;

-- _count_ends is _count_holders for jobs of a claim of several that have ended, all or some of them.
create or replace function _count_ends(queue int, jobs _claimed[], ended bit default null) returns boolean
language plpgsql volatile set search_path from current set plan_cache_mode = force_generic_plan as $$
begin
    return (select _count_holders(queue, array_agg(j.id), array_agg(j.headers), -1, 0) from unnest(jobs) j where ended is null or get_bit(ended, (j.lease >> 1 & 255)::int) = 1);
end $$;

-- _put_off writes those of some new jobs to _scheduled that are delayed or wait for barriers, and says which.
create or replace function _put_off(queue int, at timestamptz, ids bigint[], known boolean[], payloads bytea[], keys text[], group_keys text[], priorities int[], not_befores timestamptz[], headers jsonb[]) returns boolean[]
language plpgsql volatile set search_path from current as $$
declare made bigint[]; held jsonb[];
begin
    if exists (select from unnest(not_befores, headers) j(not_before, header) where j.not_before is not null and j.header ? 'penstock-waits-for') then
        raise exception 'not_before is given, and waits_for' using errcode = '22023', hint = 'leave one of them out: a job that waits for barriers runs once they are open';
    elsif 'infinity' = any (not_befores) then -- in _scheduled that means something else
        raise exception 'not_before is infinity' using errcode = '22023', hint = 'give a time, or do not enqueue the job yet';
    end if;
    with w as (
        insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload)
        select j.id, _put_off.queue, case when j.header ->> 'penstock-unique-key' is null then 0 else -1 end, case when j.header ? 'penstock-waits-for' then '-infinity' else j.not_before end,
               at, coalesce(j.priority, 0), coalesce(j.group_key, ''), j.key, j.header - 'penstock-report', j.payload
          from unnest(ids, known, payloads, keys, group_keys, priorities, not_befores, headers) j(id, known, payload, key, group_key, priority, not_before, header)
         where not j.known and (j.not_before > at or j.header ? 'penstock-waits-for') returning _scheduled.*)
    select array_agg(w.id), array_agg(w.headers) into made, held from w;
    perform _refuse_barrier(queue, b.barrier, bool_or(b.holding)) from unnest(held) w(headers) cross join lateral (
        select (w.headers ->> 'penstock-holds')::bigint, true where w.headers ? 'penstock-holds' union select unnest(_waits_for(w.headers)), false) b(barrier, holding) group by b.barrier;
    perform _count_holders(queue, made, held, 1, 0);
    insert into _barrier (barrier, queue, part, running) select distinct b.barrier, _put_off.queue, 17, w.id from unnest(made, held) w(id, headers) cross join lateral unnest(_waits_for(w.headers)) b(barrier);
    return array(select coalesce(i = any (made), false) from unnest(ids) with ordinality u(i, o) order by u.o);
end $$;

-- _waits_for returns the barriers that a job waits for.
create or replace function _waits_for(headers jsonb) returns bigint[]
language sql immutable return string_to_array(headers ->> 'penstock-waits-for', ',')::bigint[];

-- _turn_barriers counts what this transaction has noted, when it commits. The first of its notes counts all; later ones find a newer row of the
-- transaction. A transaction that makes constraints immediate counts at once, and keeps the locks. In another cluster a restored row may have the
-- same xid, and a lower n.
create or replace function _turn_barriers() returns trigger
language plpgsql volatile security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    look  bigint[]; opens bigint[] := '{}';
    b     bigint; s record; upto bigint;
    many  constant boolean := new.part = -19;
    low   constant int := case when many then 0 else -1 - new.part end; high constant int := case when many then 15 else low end;
begin
    if (select bool_or(x.xid = new.xid and x.n > new.n) from unnest(case when many then '{18}' when new.part between -16 and -1 then array[18, low] else '{16}' end::int[]) p
         cross join lateral (select x.* from _barrier x where x.barrier = new.barrier and x.part = p order by x.n desc limit 1) x) then
        return null;
    end if;
    upto := (select x.n from _barrier x where x.xid = new.xid order by x.n desc limit 1);
    if upto = new.n and new.part not in (-17, 17) then -- mostly it is the only one
        perform pg_advisory_xact_lock(1885695586, l.lock) from (select _barrier_lock(new.barrier, p) as lock from generate_series(low, high) p order by 1) l;
        with a as materialized (select x.* from _barrier x where x.barrier = new.barrier and x.part = 18 order by x.n desc limit 1)
        insert into _barrier as b (barrier, queue, part, running, dead, parts)
        select new.barrier, new.queue, case when many then 18 else low end, case when not many then min(c.running) end, new.dead + coalesce(min(c.dead), 0), case when many then array_agg(c.running order by c.p) end
          from (select p, case when many then 0 else w.dead end as dead,
                       coalesce(new.parts[p + 1], new.running) + coalesce(case when a.n > coalesce(w.n, 0) then a.parts[p + 1] else w.running end, 0) as running
                  from generate_series(low, high) p left join lateral (select x.* from _barrier x where x.barrier = new.barrier and x.part = p order by x.n desc limit 1) w on true
                  left join a on true) c
        returning case when many and (select bool_or(d <> 0 and r <= 0) from unnest(_turn_barriers.new.parts, b.parts) u(d, r)) or b.running <= 0 or _turn_barriers.new.dead > 0 then array[b.barrier] end into look;
    else
        perform pg_advisory_xact_lock(1885695586, l.lock) -- "penb"
           from (select distinct _barrier_lock(x.barrier, p) as lock from _barrier x cross join lateral generate_series(case x.part when -19 then 0 else -1 - x.part end, case x.part when -19 then 15 else -1 - x.part end) p
                  where x.xid = new.xid and x.n between new.n and upto and (x.part between -16 and -1 or x.part = -19) order by 1) l;
        with noted as (
            select x.barrier, x.queue, case x.part when -19 then p.i - 1 else -1 - x.part end as part, sum(p.running) as running, sum(x.dead) as dead, max(x.dead) > 0 as died, bool_or(x.part = -19) as many
              from _barrier x cross join lateral unnest(coalesce(x.parts, array[x.running])) with ordinality p(running, i)
             where x.xid = new.xid and x.n between new.n and upto and (x.part between -16 and -1 or x.part = -19) group by 1, 2, 3),
        counted as (
            select o.barrier, o.queue, o.part, o.many, o.died or (o.running <> 0 or o.dead <> 0) and c.running <= 0 as looks, c.running, o.dead <> 0 as dying, o.dead + coalesce(w.dead, 0) as dead
              from noted o left join lateral (select x.* from _barrier x where x.barrier = o.barrier and x.part = o.part order by x.n desc limit 1) w on true
              left join lateral (select x.* from _barrier x where x.barrier = o.barrier and x.part = 18 order by x.n desc limit 1) a on true
             cross join lateral (select (o.running + coalesce(case when a.n > coalesce(w.n, 0) then a.parts[o.part + 1] else w.running end, 0))::bigint as running) c),
        written as (
            insert into _barrier (barrier, queue, part, running, dead, parts)
            select c.barrier, c.queue, 18 as part, null, 0, array_agg(c.running order by c.part) from counted c where c.many group by 1, 2
            union all select c.barrier, c.queue, c.part, c.running, c.dead, null from counted c where not c.many or c.dying order by part desc)
        select array_agg(distinct l.barrier) into look from (
            select c.barrier from counted c where c.looks union all select x.barrier from _barrier x where x.xid = new.xid and x.n between new.n and upto and x.part in (-17, 17)) l(barrier);
    end if;
    if look is null then return null; end if;
    perform pg_advisory_xact_lock(1885695586, l.lock) from (select distinct _barrier_lock(x, 16) as lock from unnest(look) x order by 1) l;
    foreach b in array look loop
        s := _barrier_state(b);
        perform _refuse_barrier(s.queue, b, true) where s.stage = 2 and s.running > 0;
        s.stage := greatest(s.stage, (exists (select from _barrier x where x.xid = new.xid and x.n between new.n and upto and x.barrier = b and x.part = -17))::int);
        s.stage := case when s.stage = 1 and s.running <= 0 and s.dead <= 0 then 2 else s.stage end;
        insert into _barrier (barrier, queue, part, running, dead)
        select b, x.queue, 16, s.stage, 0 from _barrier x where x.xid = new.xid and x.n between new.n and upto and x.barrier = b limit 1;
        opens := opens || case when s.stage > 0 and s.running <= 0 or s.dead > 0 then b end;
    end loop;
    perform _let_go(x) from unnest(opens) x where x is not null;
    return null;
end $$;

-- _barrier_lock returns the number of a lock: of a part of a barrier, of the barrier (16), or of the jobs of a queue that wait for several (17).
-- Those of parts come first, so that all transactions take their locks in one order.
create or replace function _barrier_lock(barrier bigint, part int) returns int
language sql immutable return (hashint8(barrier * 32 + part) & 511) + 512 * greatest(part - 15, 0);

-- _let_go looks at the jobs that wait for a barrier, whose lock the caller has. Those whose barriers are all open go to the ring, in the order of
-- their ids. For one with on_dead run a barrier whose other jobs are dead is open; one with on_dead cancel dies as well. A job that waits for
-- several is looked at by one transaction at a time, so that the one that opens the last barrier sees the others. It runs with its caller's settings.
create or replace function _let_go(in_barrier bigint) returns void
language plpgsql volatile set search_path from current as $$
declare
    waits constant jsonb[] := array(select s.headers from _barrier k join _scheduled s on s.queue = k.queue and s.id = k.running and s.due = '-infinity' where k.barrier = in_barrier and k.part = 17);
    q    _queue; leaf int;
    jobs bigint[]; dies bigint[]; gone bigint[]; held jsonb[]; keys text[];
begin
    if waits = '{}' then
        return;
    end if;
    select x.* into q from _queue x where x.id = (select w.queue from _barrier w where w.barrier = in_barrier and w.part = 17 limit 1);
    perform pg_advisory_xact_lock(1885695586, _barrier_lock(q.id, 17)) where exists (select from unnest(waits) w where cardinality(_waits_for(w)) > 1);
    with b as materialized (select x.barrier, t.* from (select distinct unnest(_waits_for(w)) as barrier from unnest(waits) w) x cross join lateral _barrier_state(x.barrier) t),
    v as (
        select s.id, bool_and(b.stage = 2 or s.headers @> '{"penstock-on-dead": "run"}' and b.stage = 1 and b.running <= 0) as goes, bool_or(s.headers ->> 'penstock-on-dead' = 'cancel' and b.dead > 0) as dies
          from _barrier k join _scheduled s on s.queue = k.queue and s.id = k.running and s.due = '-infinity' left join b on b.barrier = any (_waits_for(s.headers))
         where k.barrier = in_barrier and k.part = 17 group by s.id)
    select array_agg(v.id) filter (where v.goes), array_agg(v.id) filter (where v.dies and v.goes is not true) into jobs, dies from v;
    foreach leaf in array _listed('_scheduled_slot') loop -- the older first: a job may move meanwhile
        execute format($sql$
            with d as (delete from _scheduled_%s l where l.queue = $1 and (l.id = any ($2) or l.id = any ($3)) and l.due = '-infinity' returning l.*),
            w as (select d.*, greatest(d.attempt, 0) as tries, nullif(d.headers - '{penstock-waits-for,penstock-on-dead}'::text[], '{}') as rest, d.id = any ($3) is true as dies from d),
            i as (
                insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select w.id, w.tries, w.created_at, w.priority, w.group_key, w.key, w.rest, w.payload, w.failures from w where not w.dies order by w.id),
            j as (
                insert into _dead_job (queue, id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select w.queue, w.id, w.tries, w.created_at, w.priority, w.group_key, w.key, w.rest, w.payload, _failed(w.failures, w.tries, $4) from w where w.dies)
            select array_agg(w.id), array_agg(w.headers), array_agg(w.key) filter (where w.key is not null) from w where w.dies$sql$, leaf, _q(q.name))
           into gone, held, keys using q.id, jobs, dies, format('cancelled: a job that holds barrier %s is dead', in_barrier);
        perform _count_holders(q.id, gone, held, -1, 1), _promote(q.id, coalesce(keys, '{}')) where gone is not null;
    end loop;
end $$;

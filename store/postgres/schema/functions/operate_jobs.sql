-- What a queue's operators do: cancel jobs, pause, deal with dead letters, and look.

-- _operate_functions is the text of what operators call.
create or replace function _operate_functions() returns text
language sql immutable set search_path from current as $text$ select $$

-- {cancel} removes jobs wherever they are. Running ones lose their lease. A job has an
-- id of its own, with an index, if it came back or was put off. That of another is its
-- seq, for which an index of its own would cost every enqueue: it is looked up in each
-- group and priority, or, where these are more than a thousand, the ring is read. Of what is leased all is read: two
-- segments at most.
create or replace function {cancel}(in_ids bigint[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags      constant bigint := pg_sequence_last_value({flags});
    priorities constant smallint[] := array(select p from generate_series(-16, 15) p where flags & (1::bigint << (16 + p)) <> 0);
    grps       constant text[] := array(select {groups}(1000));
    keys       text[] := '{}'; -- one for each job, null without a key
begin
    if cardinality(grps) * cardinality(priorities) * cardinality(in_ids) <= 1000 then -- so grps is the whole list
        with d as (delete from {queue} t using unnest(grps) g(grp), unnest(priorities) p(priority)
                    where t.grp = g.grp and t.priority = p.priority and t.seq = any (in_ids) and t.id is null returning t.key)
        select keys || array_agg(d.key) into keys from d;
        with d as (delete from {queue} t where t.id = any (in_ids) returning t.key)
        select keys || array_agg(d.key) into keys from d;
    else
        select keys || array_agg(k) into keys from {cancel_all}(in_ids) k;
    end if;
    with d as (delete from {schema}._later l where l.queue = {id} and l.id = any (in_ids) returning l.key)
    select keys || array_agg(d.key) into keys from d;
    with d as (delete from {schema}._lease l where l.queue = {id} and l.id = any (in_ids) returning l.key)
    select keys || array_agg(d.key) into keys from d;
    perform {promote}(array(select distinct k from unnest(keys) k where k is not null));
    return cardinality(keys);
end $fn$;

create or replace function {cancel_all}(in_ids bigint[]) returns setof text
language sql volatile set enable_seqscan = on as $fn$
    delete from {queue} t where coalesce(t.id, t.seq) = any (in_ids) returning t.key
$fn$;

-- {groups} lists those that may have jobs in the ring, and ends after most. At the jobs
-- of one that has a mark it does not look, because the first ones may be dead; between
-- such groups it goes from one to the next in the index.
create or replace function {groups}(most int) returns setof text
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    at_grp text := '';
    marked text;
    found_grp text;
begin
    return next at_grp;
    for many in 1 .. most loop
        select m.grp into marked from {schema}._mark m where m.queue = {id} and m.grp > at_grp order by m.grp limit 1;
        if marked is null then
            select t.grp into found_grp from {queue} t where t.grp > at_grp order by t.grp limit 1;
        else
            select t.grp into found_grp from {queue} t where t.grp > at_grp and t.grp < marked order by t.grp limit 1;
        end if;
        at_grp := coalesce(found_grp, marked);
        exit when at_grp is null;
        return next at_grp;
    end loop;
end $fn$;

-- {pause} stops claims and dequeues, or lets them go on.
create or replace function {pause}(pausing boolean) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    update {schema}._queue q set paused = pausing where q.id = {id};
    perform {schema}._set_flags({id});
end $fn$;

create or replace function {retry_dead}(in_ids bigint[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    many int;
begin
    with d as (delete from {schema}._dead_job d where d.queue = {id} and d.id = any (in_ids) returning d.*)
    insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
    select d.id, d.attempt, d.created_at, d.priority, d.grp, d.key, d.headers, d.payload, d.failures from d order by d.id;
    get diagnostics many = row_count;
    return many;
end $fn$;

create or replace function {discard_dead}(in_ids bigint[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    many int;
begin
    delete from {schema}._dead_job d where d.queue = {id} and d.id = any (in_ids);
    get diagnostics many = row_count;
    return many;
end $fn$;

-- {status} counts jobs by where they are. It reads the queue's own segments once, and
-- of the rings that it shares only its own part.
--
-- Of a key one job may run, unless one runs already, or an earlier one waits to be
-- tried again; the others wait for it. What is due, but was not moved yet, is ready.
create or replace function {status}() returns table (ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
with line as (
    select t.key, count(*) as n, min(coalesce(t.id, t.seq)) as head, min(t.created_at) as oldest
      from {queue} t group by t.key),
ring as (
    select l.n, l.oldest, case
               when l.key is null then l.n
               when exists (select from {schema}._lease e where e.queue = {id} and e.key = l.key)
                 or exists (select from {schema}._later w where w.queue = {id} and w.key = l.key and w.id < l.head) then 0
               else 1 end as may
      from line l),
later as (
    select count(*) filter (where w.due <= clock_timestamp()) as ready,
           count(*) filter (where w.due > clock_timestamp() and w.due < 'infinity') as delayed,
           count(*) filter (where w.due = 'infinity') as waiting,
           min(w.created_at) filter (where w.due <= clock_timestamp()) as oldest
      from {schema}._later w where w.queue = {id})
select coalesce((select sum(r.may) from ring r), 0)::bigint + l.ready,
       (select count(*) from {schema}._lease e where e.queue = {id}),
       l.delayed,
       coalesce((select sum(r.n - r.may) from ring r), 0)::bigint + l.waiting,
       (select count(*) from {schema}._dead_job d where d.queue = {id}),
       greatest(interval '0', coalesce(clock_timestamp() - least(l.oldest, (select min(r.oldest) from ring r where r.may > 0)), interval '0'))
  from later l
$fn$;

$$ $text$;

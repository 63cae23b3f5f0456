-- Groups: which have jobs, and how many.

insert into _template (kind, name, body) select 'queue', 'group', $$

-- {ready} lists up to most groups that have jobs in the ring, of in_groups or, if that is null, of all. They come in the order of
-- their bytes, those behind a group first. claiming: for a caller that is going to claim; a pause and limits count then, and one with
-- a weight comes as many times. It locks nothing, and goes from group to group by skip maps and the index. Of a group with a map
-- it reads only the ranges in which jobs may be, so it steps over nothing that was taken. Once older segments have enough groups, it looks in
-- newer ones for those before the last of these, not for all.
create or replace function {ready}(in_groups text[], behind text, most int, claiming boolean default true) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan as $fn$ declare
    flags      constant bigint := pg_sequence_last_value({flags});
    priorities constant smallint[] := array(select p from generate_series(-16, 15) p where flags & (1::bigint << (16 + p)) <> 0);
    listed     constant text[] := array(select distinct x collate "C" from unnest(in_groups) x where x is not null order by 1);
    skip_map_slot  constant smallint := pg_sequence_last_value({skip_map_slot}) % 2;
    found      text[] := '{}';
    watched    boolean := false; slots smallint[]; here smallint; upto text; last text; part text[];
begin
    if (most between 1 and 10000) is not true then
        raise exception 'most is %, expected 1 to 10000', coalesce(most::text, 'null') using errcode = '22023', hint = 'call it again for those behind the last one';
    end if;
    if claiming then
        {maintain_if_due}
        watched := flags & {watched} <> 0;
        if watched and not {schema}._queue_open({id}) then return; end if;
    end if;
    slots := {slots};
    foreach upto in array array[null, behind] loop -- behind it, and then from the first one up to it
        part := '{}';
        for i {older_first} loop
            here := slots[i]; last := case when cardinality(part) >= most - cardinality(found) then (array(select distinct x collate "C" from unnest(part) x order by 1))[most - cardinality(found)] end;
{segments here}
            part := part || array(
                with recursive g(group_key, mapped) as (
                    select x.group_key collate "C", true
                      from unnest(case when in_groups is not null then listed when upto is null then array[behind] else array[''] end) x(group_key)
                    union all
                    select coalesce(b.group_key, m.group_key), b.group_key is null
                      from g left join lateral (select m.group_key from {schema}._skip_map m
                         where m.slot = skip_map_slot and m.queue = {id} and m.group_key > g.group_key order by m.group_key limit 1) m on true
                     cross join lateral (select case when m.group_key is null
                        then (select t.group_key from {segment} t where t.group_key > g.group_key order by t.group_key limit 1)
                        else (select t.group_key from {segment} t where t.group_key > g.group_key and t.group_key < m.group_key order by t.group_key limit 1) end) b(group_key)
                     where in_groups is null and (upto is null or g.group_key < upto) and (last is null or g.group_key < last) and coalesce(b.group_key, m.group_key) is not null)
                select g.group_key from g where case when upto is null then g.group_key > behind else g.group_key <= upto end
                   and (last is null or g.group_key < last) and case when g.mapped and not exists (
                        select from unnest(priorities) p(priority) left join lateral (select k.lo, k.hi, k.pending from {schema}._skip_map k
                             where k.slot = skip_map_slot and k.queue = {id} and k.group_key = g.group_key and k.priority = p.priority order by k.n desc limit 1) k on true
                         -- what committed late, wherever it is; of a transaction that wrote much a claim may look
                         where exists (select from unnest(k.pending) x cross join lateral (
                                    select count(*) = 100 or bool_or(w.group_key = g.group_key and w.priority = p.priority) as late
                                      from (select t.group_key, t.priority from {segment} t where t.xid = x limit 100) w) w
                                 where pg_visible_in_snapshot(x, pg_current_snapshot()) and w.late)
                            or exists (select from unnest(coalesce(k.lo, '{0}'), coalesce(k.hi, '{9223372036854775806}')) r(lo, hi) cross join lateral (
                                select from {segment} t where t.group_key = g.group_key and t.priority = p.priority and t.seq >= r.lo and t.seq <= r.hi limit 1) t)) then false
                       when watched then {schema}._group_open({id}, g.group_key) else true end limit most);
{end}
        end loop;
        found := found || array(select distinct x collate "C" from unnest(part) x order by 1 limit most - cardinality(found));
        exit when cardinality(found) >= most;
    end loop;
    return query select unnest(case when watched then array(select {schema}._weighted({id}, found)) else found end);
end $fn$;

$$;

-- _count_groups counts the jobs of up to most groups by where they are, as _count_jobs does: of groups after one, or
-- from the first one on. Of jobs that are leased, delayed or dead it counts up to upto each, and cut means that there
-- are more. Of the jobs of a group in the ring it counts a thousand, and more means that there are others. oldest is in
-- us.
create or replace function _count_groups(queue int, after text, most int, upto int)
returns table (group_key text, ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest bigint, more boolean, cut boolean)
language plpgsql volatile set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$ declare
    name       constant text := (select q.name from _queue q where q.id = queue);
    priorities constant smallint[] := (_queue_flags(name)).priorities;
    in_ring    text[];
    jobs       text;
    written    text;
begin
    execute format('select array(select g from %s(null, $1, $2, false) g)', _q(format('_%s.ready', name))) into in_ring using after, most;
    select string_agg(format($sql$
                select t.key, coalesce(t.id, t.seq) as id, t.created_at from r cross join lateral (
                    select * from %s t where t.group_key = n.group_key and t.priority = p.priority and t.seq >= r.lo and t.seq <= r.hi order by t.seq limit 1001) t$sql$, s.oid::regclass),
            ' union all ' order by g.turn nulls first),
           string_agg(format('(select t.group_key, t.priority, t.seq, t.key, coalesce(t.id, t.seq) as id, t.created_at from %s t where t.xid = e.x limit 1001)', s.oid::regclass), ' union all ')
      into jobs, written
      from _segments(name) s left join _segment g on g.queue = _count_groups.queue and g.slot = s.slot
     where pg_relation_size(s.oid) > 0;
    return query execute format($sql$
        with leased as materialized (select e.group_key, coalesce(256 - bit_count(e.done), 1) as jobs from _lease e where e.queue = $1 limit $6),
        later as materialized (select w.group_key, w.due, w.created_at from _scheduled w where w.queue = $1 order by w.due limit $6),
        dead as materialized (select d.group_key from _dead_job d where d.queue = $1 limit $6),
        rest as (select (select count(*) from leased) = $6 or (select count(*) from later) = $6 or (select count(*) from dead) = $6 as cut),
        other as (
            select o.group_key, sum(o.ready)::bigint as ready, sum(o.running)::bigint as running, sum(o.delayed)::bigint as delayed,
                   sum(o.waiting)::bigint as waiting, sum(o.dead)::bigint as dead, min(o.oldest) as oldest
              from (
                select e.group_key, 0 as ready, sum(e.jobs) as running, 0 as delayed, 0 as waiting, 0 as dead, null::timestamptz as oldest
                  from leased e group by e.group_key
                union all
                select w.group_key, count(*) filter (where isfinite(w.due) and w.due <= clock_timestamp()), 0,
                       count(*) filter (where w.due > clock_timestamp() and w.due < 'infinity'),
                       count(*) filter (where not isfinite(w.due)), 0, min(w.created_at) filter (where isfinite(w.due) and w.due <= clock_timestamp())
                  from later w group by w.group_key
                union all
                select d.group_key, 0, 0, 0, 0, count(*), null from dead d group by d.group_key) o
             group by o.group_key),
        name as (
            select n.group_key from (select unnest($2 || $3) collate "C" union select o.group_key from other o) n(group_key)
             where n.group_key > $3 or $3 = '' order by n.group_key limit $4 + 1), -- '' may have none
        map as materialized (
            select n.group_key, p.priority, k.*
              from name n cross join unnest($5) p(priority) cross join lateral (
                select m.lo, m.hi, m.pending from _skip_map m
                 where m.queue = $1 and m.group_key = n.group_key and m.priority = p.priority order by m.n desc limit 1) k),
        -- Jobs committed since a map was written are elsewhere than in the map: they are looked for by their transaction. Workers
        -- are among those, and wrote nothing. If one wrote much, the map holds too little: then all is walked, with the jobs already
        -- taken.
        ended as (select x from (select distinct unnest(m.pending) as x from map m) e where pg_visible_in_snapshot(e.x, pg_current_snapshot())),
        late as materialized (select e.x, t.* from ended e cross join lateral (%s) t),
        much as materialized (select array(select l.x from late l group by l.x having count(*) > 1000) as xids),
        job as (
            select n.group_key, j.key, j.id, j.created_at, row_number() over (partition by n.group_key) as nth
              from name n cross join much cross join lateral (
                select j.*
                  from unnest($5) p(priority)
                  left join map k on k.group_key = n.group_key and k.priority = p.priority and not k.pending && much.xids
                 cross join lateral (
                    with r as (select r.lo, r.hi from unnest(coalesce(k.lo, '{0}'), coalesce(k.hi, '{9223372036854775806}')) r(lo, hi)) %s
                    union all
                    select l.key, l.id, l.created_at from late l
                     where l.group_key = n.group_key and l.priority = p.priority and l.x = any (k.pending)
                       and not exists (select from r where l.seq >= r.lo and l.seq <= r.hi)) j
                 limit 1001) j),
        line as (
            select j.group_key, j.key, count(*) as n, min(j.id) as head, min(j.created_at) as oldest
              from job j where j.nth <= 1000 group by j.group_key, j.key),
        ring as (
            select l.group_key, sum(l.may)::bigint as ready, sum(l.n - l.may)::bigint as waiting, min(l.oldest) filter (where l.may > 0) as oldest,
                   exists (select from job j where j.group_key = l.group_key and j.nth > 1000) as more
              from (
                select l.*, case when l.key is null then l.n
                                 when exists (select from _lease e where e.queue = $1 and e.key = l.key)
                                   or exists (select from _scheduled w where w.queue = $1 and w.key = l.key and w.id < l.head and (w.attempt <> 0 or w.due = 'infinity')) then 0
                                 else 1 end as may
                  from line l) l
             group by l.group_key)
        select n.group_key, coalesce(r.ready, 0) + coalesce(o.ready, 0), coalesce(o.running, 0), coalesce(o.delayed, 0),
               coalesce(r.waiting, 0) + coalesce(o.waiting, 0), coalesce(o.dead, 0),
               coalesce(extract(epoch from greatest(interval '0', clock_timestamp() - least(r.oldest, o.oldest))) * 1000000, 0)::bigint, coalesce(r.more, false), f.cut
          from rest f cross join name n left join ring r on r.group_key = n.group_key left join other o on o.group_key = n.group_key
         where r.group_key is not null or o.group_key is not null
         order by n.group_key limit $4$sql$, coalesce(written, $sql$select null::text as group_key, 0::smallint as priority, 0::bigint as seq, null::text as key, 0::bigint as id, null::timestamptz as created_at where false$sql$),
            coalesce(jobs, $sql$select null::text as key, 0::bigint as id, null::timestamptz as created_at where false$sql$))
      using queue, in_ring, after, most, priorities, upto;
end $$;

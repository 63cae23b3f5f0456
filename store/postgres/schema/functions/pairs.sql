-- The rings of two segments that queues share: leases, delayed jobs, dedup keys, states of groups, barriers, requests for maintenance. One segment is
-- written to. When it is full the other one is, and the first stays listed: what looks for a row looks into
-- it as well. When few rows are left in it they are carried over. When no transaction can commit rows into
-- it any more it leaves the list, so that overlapping long transactions do not keep it locked. It is
-- truncated as soon as its lock is free.

-- _listed lists the segments to look into, by the ring's register. The one from which rows are carried over comes
-- first, so that a row that moves meanwhile is not missed. It has no search_path, so that it costs no call.
create or replace function _listed(register regclass) returns int[]
language sql volatile
return case pg_sequence_last_value(register) when 0 then '{0}'::int[] when 1 then '{1}' when 2 then '{1,0}' else '{0,1}' end;

-- _reclaim_pair keeps one ring of two segments small, and returns whether it truncated a segment. When the remaining rows
-- of the segment that is not written to are few, they are carried over. They are also when the other has become twice
-- as large as they are (by a hundred pages). Were the whole segment the measure, each turn would be twice as large.
-- alive names the rows r that count. A segment that is not listed and holds some comes from a dump, in which registers
-- are younger than rows. A writer that has read the register has locked the ring before: until it ends, the segment stays listed.
create or replace function _reclaim_pair(ring text, full_bytes bigint, alive text) returns boolean
language plpgsql volatile set search_path from current
set enable_hashjoin = off set enable_mergejoin = off
set hash_mem_multiplier = 1000 -- else each of a million rows is compared with those that alive has looked up
as $$ declare
    register constant regclass := _q(ring || '_slot')::regclass;
    state    constant bigint := pg_sequence_last_value(register);
    current  constant int := state % 2;
    here     constant text := _q(ring || '_' || current);
    there    constant text := _q(ring || '_' || 1 - current);
    began    constant timestamptz := clock_timestamp();
    p        _pair;
    columns  text;
    body     boolean;
    size     text;
    bytes    bigint;
    share    constant float8 := least(100 / greatest(pg_relation_size(there) / 8192.0, 1), 1);
    many     int; rest boolean;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock(_q(ring)::regclass::oid::int, 0) or state <> pg_sequence_last_value(register) then
        return false;
    end if;
    if pg_relation_size(there) = 0 then
        if pg_table_size(here) >= full_bytes then
            update _pair x set again = clock_timestamp() + interval '1 s' where x.name = ring; -- who has read the register gets his lock meanwhile: each queue has its own maintenance
            perform setval(register, 3 - current);
        end if;
        return false;
    end if;
    select * into p from _pair x where x.name = ring;
    if state >= 2 then
        if p.writers is null then -- not when it was left behind: who had read the register then may have got his lock since
            p.writers := _writers_in(there) || _writers_in(_q(ring)); -- an INSERT locks the ring before it reads the register
            update _pair x set writers = p.writers where x.name = ring;
        end if;
        if _still_in(there, p.writers) or _writers_in(_q(ring)) && p.writers then return false; end if;
    end if;
    select string_agg(quote_ident(a.attname), ', '), bool_or(a.attname = 'payload') into columns, body
      from pg_attribute a where a.attrelid = _q(ring)::regclass and a.attnum > 0 and not a.attisdropped and a.attname <> 'slot';
    alive := format('(%s) and exists (select from _queue q where q.id = abs(r.queue))', alive);
    if pg_table_size(here) < 2 * pg_table_size(there) then
        size := case when ring = '_lease' then 'coalesce(octet_length(r.payload), pg_column_size(r.jobs))' when body then 'octet_length(r.payload)' else '0' end;
        execute format('select count(*), coalesce(sum(b), 0) from (select 200 + %s as b from %s r where %s limit 20000) s', size, there, alive) into many, bytes;
        if many = 20000 or bytes > 8388608 then
            execute format('select greatest(%s, sum(200 + %s) / %s) from %s r tablesample system (%s) where %s', bytes, size, share, there, 100 * share, alive) into bytes;
            if pg_table_size(here) < 2 * bytes then
                update _pair x set again = _look_again(began) where x.name = ring and _look_again(began) is not null;
                return false;
            end if;
        end if;
    end if;
    execute format($sql$
        with d as (
            delete from %1$s t where t.ctid = any (array(select r.ctid from %1$s r where %2$s limit %6$s for update of r skip locked)) returning t.*)
        insert into %3$s (slot, %4$s) select %5$s, %4$s from d$sql$, there, alive, here, columns, current, case when body then 2000 else 10000 end);
    get diagnostics many = row_count;
    if many > 0 then
        return false; -- it continues with the next call
    end if;
    execute format('select exists (select from %s r where %s)', there, alive) into rest;
    if rest then -- another session has locked it
        update _pair x set again = _look_again(began) where x.name = ring and _look_again(began) is not null;
    elsif state >= 2 and p.retired is null then -- what this transaction has deleted comes back if it fails, and the register does not
        update _pair x set retired = clock_timestamp() where x.name = ring;
    elsif state >= 2 and _dump_is_coming(there) then -- which reads the register last, and shows rows where they were when it began
        update _pair x set again = _lock_again(p.retired) where x.name = ring;
    elsif state >= 2 then
        perform setval(register, current);
    elsif _truncate(there, alive) then
        update _pair x set writers = null, retired = null, again = null where x.name = ring;
        return true;
    else
        update _pair x set again = greatest(_lock_again(coalesce(p.retired, began)), _look_again(began)) where x.name = ring;
    end if;
    return false;
end $$;

-- _reclaim_pairs calls _reclaim_pair for the rings of two segments that have space to give back. One statement looks at
-- their sizes, registers and pauses, and mostly finds none. The last column names the rows r that count, and are carried
-- over. Each ring has a separate lock, which is only tried. An error of one is noted in _pair, and the others continue.
create or replace function _reclaim_pairs() returns void
language plpgsql volatile set search_path from current as $$ declare p record;
begin
    for p in select x.*, r.trouble
          from (values
            ('_skip_map', '{_skip_map_0,_skip_map_1}'::regclass[], pg_sequence_last_value('_skip_map_slot'), 4194304, ''),
            -- a claim under a queue's max_running steps over all dead entries: 5,000 of them are enough, if there are four for each that is not
            ('_lease', '{_lease_0,_lease_1}', pg_sequence_last_value('_lease_slot'), case when exists (select from _queue q where q.max_running is not null) and (select sum(pg_stat_get_dead_tuples(l))
               >= greatest(5000, 4 * sum(pg_stat_get_live_tuples(l))) from unnest('{_lease_0,_lease_1}'::regclass[]) l) then 0 else 16777216 end, 'r.queue > 0 or r.lease_until > clock_timestamp()'),
            ('_scheduled', '{_scheduled_0,_scheduled_1}', pg_sequence_last_value('_scheduled_slot'), 8388608, 'true'),
            ('_maintenance', '{_maintenance_0,_maintenance_1}', pg_sequence_last_value('_maintenance_slot'), 1048576, 'false'),
            ('_group_state', '{_group_state_0,_group_state_1}', pg_sequence_last_value('_group_state_slot'), 4194304,
             -- the newest of a group, while it means something, and lists that hold a lease
             'not exists (select from _group_state s where s.queue = r.queue and s.group_key = r.group_key and s.n > r.n and coalesce(s.since, s.n) > r.n)
              and (exists (select from _lease l where l.lease = any (r.leases))
                   or (r.next_at > clock_timestamp() or r.held_until > clock_timestamp()) and not exists (select from _group_state s where s.queue = r.queue and s.group_key = r.group_key and s.n > r.n))'),
            ('_barrier', '{_barrier_0,_barrier_1}', pg_sequence_last_value('_barrier_slot'), 4194304,
             -- most rows are notes that have been counted: those that have not are looked up once
             'case when r.part = -1 then r.n in (
                   select x.n from (
                        select d.barrier, coalesce((select max(s.n) from _barrier s where s.barrier = d.barrier and s.part = 0), 0) as n from (select distinct s.barrier from _barrier s where s.part = 16) d
                         where (select s.running from _barrier s where s.barrier = d.barrier and s.part = 16 order by s.n desc limit 1) < 2 offset 0) b
                   join _barrier x on x.barrier = b.barrier and x.part = -1 and x.n > b.n)
              else r.part >= 0 and coalesce((select s.running from _barrier s where s.barrier = r.barrier and s.part = 16 order by s.n desc limit 1), 2) < 2
                   and (r.part = 17 or not exists (select from _barrier s where s.barrier = r.barrier and s.part = r.part and r.n < s.n)) end'),
            ('_dedup', '{_dedup_0,_dedup_1}', pg_sequence_last_value('_dedup_slot'), 16777216,
             'r.at > clock_timestamp() - (select q.dedup_window from _queue q where q.id = r.queue)')) x(ring, segments, state, full_bytes, alive)
          join _pair r on r.name = x.ring
         where case when pg_relation_size(x.segments[2 - x.state % 2]) > 0 then not _not_yet(r.again)
                    else pg_table_size(x.segments[1 + x.state % 2]) >= x.full_bytes end
    loop
        begin
            if p.ring = '_skip_map' then
                perform _reclaim_skip_maps();
            else
                perform _reclaim_pair(p.ring, p.full_bytes, p.alive);
            end if;
            if p.trouble is not null then update _pair x set trouble = null where x.name = p.ring; end if;
        exception when others then
            perform _in_trouble(null, null, p.ring, sqlerrm, sqlstate);
        end;
    end loop;
end $$;

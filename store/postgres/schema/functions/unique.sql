-- Unique jobs: at most one job with a unique_key that has not ended. It is the job's key, and its header penstock-unique-key. So the
-- indexes by key find it wherever it is, and at most one of them runs. A queue without such jobs pays nothing for them.
--
-- Who enqueues one, or retries one that is dead, holds the lock of its key (_hold_keys) and then looks for a twin. The jobs that it finds
-- may be moved meanwhile, and end, by transactions without that lock; no other can come.
--
-- Of those that wait at most one came while another ran. A delayed one has the attempt -1, like a job that was released for a while: the
-- index by key has no others that are delayed.

-- _unended returns the unique jobs with these keys that have not ended, and where they are. One statement reads all places, so that a
-- job that moves is in one of them. It reads again if a place came into use meanwhile.
create or replace function _unended(queue int, keys text[]) returns table (id bigint, key text, state text, created_at timestamptz, place regclass, at tid)
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$ declare
    q     constant _queue := (select q from _queue q where q.id = queue);
    ring  constant regclass := _q(format('_%s.ring', q.name))::regclass;
    found _unique_job[];
    turns bigint[];
begin
    loop
        turns := array[pg_sequence_last_value(ring), pg_sequence_last_value('_lease_slot'), pg_sequence_last_value('_scheduled_slot')];
        execute format('select array_agg(row(u.id, u.key, u.state, u.created_at, u.place, u.at)::_unique_job order by u.key, u.id) from (%s) u', (
            select string_agg(format(p.look, p.place), ' union all ')
              from (select _q(format('_%s.%s', q.name, s)), 'select coalesce(t.id, t.seq) as id, t.key, ''ring'' as state, t.created_at, t.tableoid::regclass as place, t.ctid as at
                       from %s t where t.key = any ($1) and t.headers ->> ''penstock-unique-key'' = t.key' from unnest(_listed_slots(q.id, q.lifo, ring)) s
                    union all
                    select '_lease_' || s, 'select t.id, t.key, ''leased'', t.created_at, t.tableoid::regclass, t.ctid
                       from %s t where t.queue = $2 and t.key = any ($1) and t.headers ->> ''penstock-unique-key'' = t.key' from unnest(_listed('_lease_slot')) s
                    union all
                    select '_scheduled_' || s, 'select t.id, t.key, ''scheduled'', t.created_at, t.tableoid::regclass, t.ctid
                       from %s t where t.queue = $2 and t.key = any ($1) and (t.attempt <> 0 or t.due = ''infinity'') and t.headers ->> ''penstock-unique-key'' = t.key' from unnest(_listed('_scheduled_slot')) s) p(place, look)))
           into found using keys, queue;
        exit when turns = array[pg_sequence_last_value(ring), pg_sequence_last_value('_lease_slot'), pg_sequence_last_value('_scheduled_slot')];
    end loop;
    return query select u.* from unnest(found) u;
end $$;

-- _enqueue_unique enqueues one unique job whose key is locked, and returns its id, or that of the job that was there: known. To replace
-- that, it also takes the lock that workers take for a job of the key. So they pass over the key until the transaction ends, instead of
-- waiting for a row. It waits for a transaction that moves the job, and looks again. In the ring it updates the row, which keeps its
-- place there. A waiting job whose deadline has passed ends here: nothing is done for it, so a job that it hides would be lost. One that was
-- leased before has no other attempt, so another job comes behind it.
create or replace function _enqueue_unique(queue int, seq regclass, payload bytea, group_key text, priority int, not_before timestamptz, headers jsonb, out id bigint, out known boolean)
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$ declare
    unique_key constant text := headers ->> 'penstock-unique-key';
    mode       constant text := coalesce(headers ->> 'penstock-on-conflict', 'ignore');
    ring       constant text := (select _q(q.name) from _queue q where q.id = queue);
    barriers   constant text := $sql$jsonb_strip_nulls(jsonb_build_object('penstock-holds', t.headers -> 'penstock-holds', 'penstock-waits-for', t.headers -> 'penstock-waits-for', 'penstock-on-dead', t.headers -> 'penstock-on-dead'))$sql$;
    mine       boolean := false; late boolean;
    j          record; held jsonb[];
    due        timestamptz := not_before;
    was        record;
    done       int;
begin
    headers := headers - 'penstock-report'; -- of the job that it was made of
    loop
        select u.* into j from _unended(queue, array[unique_key]) u order by u.state = 'leased', u.id desc limit 1; -- of those that wait, the last one
        known := j.id is not null and (mode = 'ignore' or j.state <> 'leased');
        exit when not known; id := j.id;
        if mode = 'ignore' then
            execute format('select coalesce(_deadline(t.headers) <= clock_timestamp(), false) from %s t where t.ctid = $1 and t.key = $2', j.place) into late using j.at, unique_key;
            continue when late is null; -- it has moved, or has ended
            exit when late and j.state = 'leased';
            if not late then return; end if;
        end if;
        if not mine then
            perform pg_advisory_xact_lock(hashtextextended(unique_key, queue));
            mine := true;
            continue;
        elsif mode = 'ignore' then
            execute format('with d as (delete from %s t where t.ctid = $1 and t.key = $2 and _deadline(t.headers) <= clock_timestamp() returning t.headers, nextval($3)) select array_agg(d.headers) from d', j.place) into held using j.at, unique_key, (select _q(format('_%s.expired', q.name))::regclass from _queue q where q.id = _enqueue_unique.queue);
            perform _count_holders(queue, held, -1, 0), _promote(queue, array[unique_key]) where held is not null;
            continue;
        end if;
        if mode = 'debounce' and not_before is not null then
            due := least(not_before, j.created_at + make_interval(secs => (headers ->> 'penstock-debounce-max')::float8));
        end if;
        if (due > clock_timestamp()) is not true or j.state = 'scheduled' then -- it keeps its place, unless it is delayed, and the barriers that it holds or waits for
            execute format('update %s t set payload = $4, headers = $5 || %s, attempt = least(t.attempt, 0), failures = null where t.ctid = $1 and t.key = $2 and %s', j.place, barriers,
                           case j.state when 'ring' then 'coalesce(t.id, t.seq) = $3' else $sql$t.id = $3 and (t.due = '-infinity' or t.due = 'infinity' and not coalesce($6 > clock_timestamp(), false))$sql$ end)
              using j.at, unique_key, id, payload, headers, due;
            get diagnostics done = row_count;
            if done > 0 then return; end if;
        end if;
        execute format('delete from %s t where t.ctid = $1 and t.key = $2 and %s = $3 returning t.created_at, t.priority, t.group_key, $4 || %s as headers', j.place,
                       case j.state when 'ring' then 'coalesce(t.id, t.seq)' else 't.id' end, barriers)
           into was using j.at, unique_key, id, headers;
        continue when was.created_at is null; -- it has moved, or has ended
        perform _where_to_begin(queue, unique_key, id); -- it may have come back to the ring, and waits elsewhere now
        if due > clock_timestamp() then
            insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload)
            values (_enqueue_unique.id, _enqueue_unique.queue, -1, due, was.created_at, was.priority, was.group_key, unique_key, was.headers, _enqueue_unique.payload);
        else
            execute format('insert into %s (id, created_at, key, group_key, priority, headers, payload) values ($1, $2, $3, $4, $5, $6, $7)', ring)
              using id, was.created_at, unique_key, was.group_key, was.priority, was.headers, payload;
        end if;
        return;
    end loop;
    id := nextval(seq); known := false;
    if not (_put_off(queue, clock_timestamp(), array[id], '{false}', array[payload], array[unique_key], array[group_key], array[priority], array[not_before], array[headers]))[1] then
        execute format('insert into %s (seq, key, group_key, priority, headers, payload) values ($1, $2, $3, $4, $5, $6)', ring)
          using id, unique_key, coalesce(group_key, ''), coalesce(priority, 0), headers, payload;
    end if;
end $$;

-- _refused_letters returns those of some dead letters that must not run again: a twin has not ended, or is among them and died before. It
-- holds the locks of their keys.
create or replace function _refused_letters(queue int, ids bigint[]) returns table (id bigint, key text, twin bigint)
language plpgsql volatile set search_path from current as $$
declare keys constant text[] := array(select distinct d.key from _dead_job d where d.queue = _refused_letters.queue and d.id = any (ids) and d.headers ->> 'penstock-unique-key' = d.key);
begin
    if keys = '{}' then return; end if;
    perform _hold_keys(queue, keys);
    return query with there as materialized (select u.key, max(u.id) as id from _unended(queue, keys) u group by u.key)
    select l.id, l.key, coalesce(t.id, l.first)
      from (select d.id, d.key, min(d.id) over (partition by d.key) as first
              from _dead_job d where d.queue = _refused_letters.queue and d.id = any (ids) and d.headers ->> 'penstock-unique-key' = d.key) l
      left join there t on t.key = l.key
     where t.id is not null or l.id <> l.first;
end $$;

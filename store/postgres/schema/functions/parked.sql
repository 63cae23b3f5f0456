-- Parked messages: set aside so that the cursor can pass, until the sink takes them.
-- Both tables are insert-only rings of two segments, because a retry that updated
-- a row, or a delivery that deleted one, would leave dead versions that every later
-- look walks over while a snapshot is pinned.

-- _reclaim_lines moves the pointer to the other segment once the current one has
-- full_bytes, carries over the states that are still true and truncates the rest.
--
-- Whoever reads these tables does it in a statement of his own, not in a function
-- that shares its caller's snapshot: such a statement locks them before it takes
-- its snapshot, and sees either the rows before the move or those after it.
create or replace function _reclaim_lines(full_bytes bigint) returns boolean
language plpgsql security definer set search_path from current set lock_timeout = '20ms'
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    current int;
    sealed  int;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock('_line'::regclass::oid::int, 0) then
        return false;
    end if;
    current := pg_sequence_last_value('_line_slot');
    sealed := 1 - current;
    if pg_relation_size(_q('_line_' || sealed)) = 0 then
        if pg_relation_size(_q('_line_' || current)) < greatest(full_bytes, 1) then
            return false;
        end if;
        perform setval('_line_slot', sealed);
        sealed := current;
    end if;
    perform _step_back_for_dumps(_q('_line_' || sealed)::regclass);
    execute format('lock table %s in access exclusive mode', _q('_line_' || sealed));
    perform _step_back_for_dumps(_q('_line_' || sealed)::regclass);
    execute format($sql$
        insert into _line (subscription, n, due, head, held, failed_since, attempt, line, failures, slot)
        select l.subscription, l.n, l.due, l.head, l.held, l.failed_since, l.attempt, l.line, l.failures, %s
          from %s l
         where l.head is not null
           and not exists (select from _line x where x.subscription = l.subscription and x.line = l.line and x.n > l.n)
           and exists (select from _subscription s where s.id = l.subscription)$sql$,
        1 - sealed, _q('_line_' || sealed));
    execute format('truncate table %s', _q('_line_' || sealed));
    perform _step_back_for_dumps(_q('_line_' || sealed)::regclass);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- _reclaim_parked is the same for the messages. What is left of the sealed segment
-- is copied only if that is little: 8 MiB, or half of what has come since. So the
-- ring stays within a few times of what is parked, and copying costs less than
-- parking did.
create or replace function _reclaim_parked(full_bytes bigint) returns boolean
language plpgsql security definer set search_path from current set lock_timeout = '20ms'
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    current int;
    sealed  int;
    alive   text;
    bytes   bigint;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock('_parked'::regclass::oid::int, 0) then
        return false;
    end if;
    current := pg_sequence_last_value('_parked_slot');
    sealed := 1 - current;
    if pg_relation_size(_q('_parked_' || sealed)) = 0 then
        if pg_table_size(_q('_parked_' || current)) < full_bytes or pg_relation_size(_q('_parked_' || current)) = 0 then
            return false;
        end if;
        perform setval('_parked_slot', sealed);
        sealed := current;
    end if;
    alive := format($sql$
        from %s m
       where exists (select from _subscription s where s.id = m.subscription)
         and m.p >= (select x.head from _line x where x.subscription = m.subscription and x.line = m.line
                      order by x.subscription desc, x.line desc, x.n desc limit 1)$sql$, _q('_parked_' || sealed));
    execute 'select coalesce(sum(octet_length(m.payload) + coalesce(pg_column_size(m.headers), 0) + 200), 0) ' || alive into bytes;
    if bytes > greatest(8388608, pg_table_size(_q('_parked_' || (1 - sealed))) / 2) then
        return false;
    end if;
    perform _step_back_for_dumps(_q('_parked_' || sealed)::regclass);
    execute format('lock table %s in access exclusive mode', _q('_parked_' || sealed));
    perform _step_back_for_dumps(_q('_parked_' || sealed)::regclass);
    execute format('insert into _parked (subscription, p, seq, created_at, line, id, key, topic, headers, payload, slot)
                    select m.subscription, m.p, m.seq, m.created_at, m.line, m.id, m.key, m.topic, m.headers, m.payload, %s %s', 1 - sealed, alive);
    execute format('truncate table %s', _q('_parked_' || sealed));
    perform _step_back_for_dumps(_q('_parked_' || sealed)::regclass);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- Parked messages: set aside so that the cursor can pass, until the sink takes them.
-- Both tables are insert-only rings of two segments. A retry that updated a row, or a delivery that
-- deleted one, would leave dead versions that every later read walks over while a snapshot is
-- pinned.
--
-- These tables are read in a separate statement, not in a function that shares its caller's
-- snapshot. Such a statement locks them before it takes its snapshot, and sees either the rows
-- before a move or those after it.

-- _reclaim_parked_keys keeps the ring of parked keys' states small: states that are still true are carried over.
create or replace function _reclaim_parked_keys(full_bytes bigint) returns boolean
language sql volatile security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
    select _turn_ring('_parked_key', full_bytes, $sql$
        insert into _parked_key (subscription, n, due, head, held, failed_since, attempt, parked_key, failures, slot)
        select l.subscription, l.n, l.due, l.head, l.held, l.failed_since, l.attempt, l.parked_key, l.failures, %2$s
          from %1$s l
         where l.head is not null
           and not exists (select from _parked_key x where x.subscription = l.subscription and x.parked_key = l.parked_key and x.n > l.n)
           and exists (select from _subscription s where s.id = l.subscription)$sql$) $$;

-- _reclaim_parked keeps the ring of parked messages small: those that are still parked are carried over.
create or replace function _reclaim_parked(full_bytes bigint) returns boolean
language sql volatile security definer set search_path from current set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select _turn_ring('_parked', full_bytes, $sql$
        insert into _parked (subscription, p, seq, created_at, parked_key, id, key, topic, headers, payload, slot)
        select m.subscription, m.p, m.seq, m.created_at, m.parked_key, m.id, m.key, m.topic, m.headers, m.payload, %2$s $sql$ || alive,
        'select coalesce(sum(octet_length(m.payload) + coalesce(pg_column_size(m.headers), 0) + 200), 0) ' || alive)
      from (select $sql$
          from %1$s m
         where exists (select from _subscription s where s.id = m.subscription)
           and m.p >= (select x.head from _parked_key x where x.subscription = m.subscription and x.parked_key = m.parked_key
                        order by x.subscription desc, x.parked_key desc, x.n desc limit 1)$sql$) a(alive) $$;

-- Adopted tables: the state of subscriptions over tables that others
-- made. Those tables are never altered.

-- _adopt_fence checks that the epoch is the latest of the subscription, and keeps the lease from changing hands until
-- the transaction ends. Error: PS001 if another relay has the lease.
create or replace function _adopt_fence(of_subscription bigint, of_epoch bigint) returns void
language plpgsql set search_path from current set enable_seqscan = off set enable_sort = off set jit = off as $$ declare latest bigint;
begin
    perform pg_advisory_xact_lock_shared(1885695585, of_subscription::int); -- "pena"
    select l.epoch into latest from _adopt_log l where l.subscription = of_subscription
     order by l.subscription desc, l.epoch desc, l.n desc limit 1;
    if latest is distinct from of_epoch then
        raise exception 'the lease is held by another relay' using errcode = 'PS001';
    end if;
end $$;

-- _adopt_lock locks a subscription for a change by another process than its relay. While it is held, no transaction
-- that settles messages is under way.
create or replace function _adopt_lock(of_subscription bigint) returns void
language sql set search_path from current
return pg_advisory_xact_lock(1885695585, of_subscription::int);

-- _adopt_release makes the first parked row of each parked key due, if nothing holds it.
create or replace function _adopt_release(of_subscription bigint, parked_keys text[]) returns void
language sql set search_path from current set enable_seqscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
    update _adopt_row r set due = clock_timestamp()
      from unnest(parked_keys) l (parked_key)
     cross join lateral (
            select f.row_id from _adopt_row f
             where f.subscription = of_subscription and f.parked_key = l.parked_key and f.died_at is null and not f.out_of_order
             order by f.subscription, f.parked_key, f.seq limit 1) first
     where r.subscription = of_subscription and r.row_id = first.row_id and r.due is null
       and not exists (select from _adopt_row h where h.subscription = of_subscription and h.parked_key = l.parked_key and h.held) $$;

create or replace function grant_adopt(role name) returns void
language plpgsql set search_path from current as $$ begin
    execute format($ddl$
        grant usage on schema %2$I to %1$I;
        grant select on table _migration to %1$I;
        grant select, insert, update, delete on table _adopt_subscription, _adopt_log, _adopt_row to %1$I;
        grant usage on sequence _adopt_n to %1$I$ddl$,
        role, current_schema());
end $$;

comment on function grant_adopt is 'Lets a role, which may use the adopted tables already, run subscriptions over them.';

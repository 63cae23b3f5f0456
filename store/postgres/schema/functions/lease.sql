-- Leases: a claim takes jobs and writes them down with a lease; the other functions end that, or
-- extend it.

insert into _template (kind, name, body) select 'queue', 'lease', replace(regexp_replace(regexp_replace($$

-- {claim} takes jobs from the ring and leases them. It asks where to write leases when it has the jobs: what waits for one until then could miss that
-- the ring of leases turns. Then it ends the jobs of acks, as {ack} does: a
-- worker's done jobs and its next ones go with one call. A row with nothing but a lease means that this one of acks was held; lease 0
-- means that the limit is near (crowded, see _admit). If the caller passes acks, even '{}', jobs from a backlog share
-- a row: a copy of each with its entries in indexes costs most of a claim. A transaction that acks one of them waits until a
-- transaction that acks another has ended. {ack} and _part know such rows.
create or replace function {claim}(n int, lease interval, in_group text, worker text, acks bigint[] default null) returns setof {schema}.leased_job
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$ declare
    flags constant bigint := pg_sequence_last_value({flags}) & ~{held}; -- only the ends of jobs look at barriers
    until constant timestamptz := clock_timestamp() + least(lease, interval '1000 years'); -- more is refused
    came  constant bigint := case when flags = {plain} and in_group = '' and not {lifo} then coalesce(pg_sequence_last_value({seq}), 0) end;
    path  constant bigint := case when came - pg_sequence_last_value({next}) <= 512
                                       and pg_sequence_last_value({fast_path}) - {now} * 4096 - 2048 - pg_sequence_last_value({ring}) % 1024 in (0, -4096)
                                  then pg_sequence_last_value({ring}) % 1024 end;
    -- A transaction that may hold locks does not wait for a job, see {draw}.
    free  constant int := case when pg_current_xact_id_if_assigned() is null then 0 else 1024 end;
    due   boolean; leaf int;
    drawn bigint; pos bigint; base bigint;
    got   int; most int; empty int := 0;
begin
    if (n between 1 and 10000 and lease > interval '0' and lease <= interval '1000 years' and coalesce(octet_length(worker), 0) <= 256) is not true then
        perform {schema}._refuse_claim(n, lease, worker);
    end if;
    -- While few jobs wait: one statement from the place in registers, as dequeue_NAME has (docs/decisions/0008). A {claim_scan}
    -- that left nothing sets them, to 64 seqs before the latest, so that what is in flight now will be found. They hold for these
    -- 25 ms and the next: no other session would move them on meanwhile.
    if path is not null then
        return query insert into {schema}._lease as l (slot, {lease_columns})
        select (select pg_sequence_last_value({lease_slot}) % 2), {lease_row} from {draw}(path + 2048, pg_sequence_last_value({next}), n) t order by t.seq
        returning {leased_job};
    -- From a backlog: the jobs behind the position that were never locked, and the position moves on. To lock each before it is
    -- deleted takes as long again as all else. Another claim that has drawn the same position, which is rare, waits for this one
    -- to commit. The scan comes five times a second, not forty as in {scan}: a claim that finds nothing takes three to five times
    -- as long.
    elsif came is not null then
        drawn := pg_sequence_last_value({fast_path}) - ({now} - 7) * 4096;
        if drawn between 0 and 32767 and drawn % 4096 < 2048 then
            if drawn % 4096 < 1024 then -- see {scan}
                drawn := drawn + 1024;
                perform setval({fast_path}, ({now} - 7) * 4096 + drawn);
            end if;
            loop
                pos := pg_sequence_last_value({next});
                most := least(n, came - pos, case when acks is null then 10000 else 255 end);
                exit when (most > 0) is not true;
                -- With one, no other session draws the same, and mostly no WAL is written. An assignment costs a third of a
                -- PERFORM.
                pos := case when most = 1 then nextval({next}) - 1 else setval({next}, pos + most) - most end;
                if acks is null or most < 8 then
                    return query insert into {schema}._lease as l (slot, {lease_columns})
                    select (select pg_sequence_last_value({lease_slot}) % 2), {lease_row} from {draw}(drawn % 1024 + free, pos, most) t
                    returning {leased_job};
                else
                    base := {next_base};
                    return query with d as materialized (select * from {draw}(drawn % 1024 + free, pos, most)), {as one, at t.seq - pos}
                    select {job}, base + 2 * (t.seq - pos), until from d t;
                end if;
                get diagnostics got = row_count;
                exit when got = n;
                n := n - got;
                empty := empty + (got = 0)::int;
                got := null;
                exit when empty > 2;
            end loop;
        end if;
    end if;
    if path is null and got is distinct from n then
        return query select * from {claim_scan}(n, until, lease, in_group, worker, acks, came);
    end if;
    -- The ends come last, because they draw an xid, and a skip map made after it bounds nothing (see {skip_map}). Mostly the leases
    -- are in the same table: without a call of {ack}, which opens both, that costs half.
    if acks <> '{}' then
        leaf := pg_sequence_last_value({lease_slot}) % 2;
        due := acks[1] & 1 = 0 {if kept}and cardinality(acks) = 1 {end if}and (path is not null or got = n) and pg_sequence_last_value({flags}) & {held} = 0;
        if due and cardinality(acks) > 1 then -- where {ack} would lock them in this order
            due := pg_sequence_last_value({lease_slot}) < 2 and (select bit_or(a) & 1 = 0 from unnest(acks) a);
        end if;
        if due then
{leaf of lease}
            return query {with l}delete from {leaf} l where l.lease = any (acks) and l.queue + 0 = {id} and l.jobs is null
            {returning} {only lease}, l.lease, null::timestamptz{from l};
{end}
            get diagnostics got = row_count;
            if got = cardinality(acks) then acks := null; end if;
        elsif acks[1] & 1 = 1 and acks[cardinality(acks)] - acks[1] = 2 * cardinality(acks) - 2 then
{leaf of lease}
            return query {whole of acks} select {only lease}, unnest(acks), null::timestamptz from l where pg_sequence_last_value({flags}) & {held} = 0 or {schema}._not_last(l.headers) or {schema}._count_all({id}, l.jobs, l.headers, cardinality(acks));
{end}
            if found then acks := null; end if;
        end if;
        if acks is not null then
            due := not found and acks[1] & 1 = 0 and flags & {keyed} <> 0; acks := array(select {ack}(acks)); -- of odd ones the look above has set found
            if due then -- there was no job: one may have waited for these
                return query select * from {claim_scan}(n, until, lease, in_group, worker, acks, came);
            end if;
            return query select {only lease}, a, null::timestamptz from unnest(acks) a;
        end if;
    end if;
    {maintain_if_due, leasing}
end $fn$;

-- {draw} takes up to most jobs behind a position for {claim}, from the segment here. These are the jobs at the next positions that were never locked: a
-- session that locks one meanwhile is waited for. Above 1024 they are those of them that are free, and above 2048 the first free ones, which waits for none.
-- In a row of several a job has the place of its position: so only above 2048 one may be further behind.
create or replace function {draw}(here bigint, pos bigint, most int) returns setof {queue}
language plpgsql volatile as $fn$ declare slot constant bigint := here % 1024; upto constant bigint := case when here < 2048 then pos + most else 9223372036854775807 end; begin
    if here < 1024 then
{segments here}
        return query delete from {segment} t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*;
{end}
    else
{segments slot}
        return query delete from {segment} t where t.ctid = any (array(
            select t.ctid from {segment} t
             where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= upto and t.key is null
             order by t.seq limit most for update skip locked)) returning t.*;
{end}
    end if;
end $fn$;

-- {claim_scan} is the slow path of {claim}: it takes what {take} finds by the skip map, or {take_keyed} by keys. Under limits it takes as many
-- jobs as _admit allows.
create or replace function {claim_scan}(most int, until timestamptz, lease interval, in_group text, worker text, acks bigint[], came bigint) returns setof {schema}.leased_job
language plpgsql volatile as $fn$ declare
    flags constant bigint := pg_sequence_last_value({flags}) & ~{held};
    due   boolean;
    got   int;
    base  bigint;
    granted record; -- see _admit
begin
    if flags & ({keyed} | {watched} | {dated}) = 0 then
        if pg_current_xact_id_if_assigned() is not null then
            came := null; -- jobs that this transaction took may come back, and it does not see them
        elsif came is not null then -- from a backlog few go by the skip map, each over all that was taken since it was made
            due := pg_sequence_last_value({fast_path}) % 4096 < 2048 or random() < 0.05;
        end if;
        base := case when acks is not null and most between 8 and 255 and flags = {plain} then {next_base} end;
        if base is null then
            return query insert into {schema}._lease as l (slot, {lease_columns})
            select (select pg_sequence_last_value({lease_slot}) % 2), {lease_row} from {take}(most, in_group, due, false, false) t
            returning {leased_job};
        else
            return query with d as materialized (select t.*, row_number() over () as i from {take}(most, in_group, due, false, false) t), {as one, at t.i}
            select {job}, base + 2 * t.i, until from d t;
        end if;
        get diagnostics got = row_count;
        if came is not null and got > 0 and got < most then
            perform setval({next}, greatest(came - 64, 0)), setval({fast_path}, {now} * 4096 + 2048 + pg_sequence_last_value({ring}) % 1024);
        end if;
    elsif flags & {watched} = 0 then
        return query insert into {schema}._lease as l ({lease_columns})
        select {lease_row} from {take_keyed}(most, in_group, true) t
        returning {leased_job};
    else
        select * into granted from {schema}._admit({id}, in_group, most, acks);
        return query select {only lease}, 0::bigint, null::timestamptz where granted.crowded and acks is not null;
        if granted.admitted > 0 then
            return query with l as (
                insert into {schema}._lease as l (listed, {lease_columns})
                select granted.listed, {lease_row} from (
                    select * from {take_keyed}(granted.admitted, in_group, true) where flags & ({keyed} | {dated}) <> 0
                    union all select * from {take}(granted.admitted, in_group, null, false, true) where flags & ({keyed} | {dated}) = 0) t
                returning l.*)
            select {leased_job} from (select case when granted.listed is not null then {schema}._admitted(granted.q, granted.g, granted.state, array_agg(l.lease), granted.listed) end from l) a cross join l;
        end if;
    end if;
end $fn$;

-- {ack} ends jobs and returns the leases that were held. queue + 0 keeps the planner
-- from the indexes that begin with the queue: a lease is found by its number. Where the ring has turned since it was
-- asked what is listed, a lease may have moved to a segment that this call does not look into. A transaction that locks
-- several leases does it in one order: by segment as listed, in each the rows of several by number, and then the others by number. The
-- settings below leave only an index scan, which takes an array in the order of the index.
create or replace function {ack}(in_leases bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$ declare
    todo int := cardinality(in_leases);
    turn bigint;
    got  int;
    held bigint[];
    keys text[];
    leaf int := pg_sequence_last_value({lease_slot}) % 2;
    odd  boolean := in_leases[1] & 1 = 1; -- mostly of a claim of several
    ties boolean; headers jsonb[]; -- jobs may hold barriers
begin
    if todo = 1 and not odd and pg_sequence_last_value({flags}) & ({keyed} | {held}) = 0 then -- few expressions, see dequeue_NAME
{leaf of lease}
        return query {with l}delete from {leaf} l where l.lease = any (in_leases) and l.queue + 0 = {id} and l.jobs is null {returning} l.lease{from l};
{end}
        if found then return; end if;
    elsif odd is not true and todo > 1 then
        odd := (select bool_or(a & 1 = 1) from unnest(in_leases) a);
    elsif odd and in_leases[todo] - in_leases[1] = 2 * todo - 2 then
        foreach leaf in array {listed lease} loop
{leaf of lease}
            return query {whole of in_leases} select unnest(in_leases) from l where pg_sequence_last_value({flags}) & {held} = 0 or {schema}._count_all({id}, l.jobs, l.headers, todo);
{end}
            if found then return; end if;
        end loop;
    end if;
    loop
        turn := pg_sequence_last_value({lease_slot});
        foreach leaf in array {listed lease} loop
            if odd then
{leaf of lease}
                return query with m as materialized (
                    select a & -511 as lease, bit_or(set_bit({nobody}, (a >> 1 & 255)::int, 1)) as places from unnest(in_leases) a where a & 1 = 1 group by 1 order by 1),
                o as materialized (
                    select l.lease, l.done, l.jobs{if kept}, l.claimed_at, l.worker, l.group_key, l.priority, l.key{end if}, m.places & ~l.done as ended
                      from m cross join lateral (select * from {leaf} l where l.lease = m.lease and l.queue + 0 = {id} and l.jobs is not null for update) l),
                whole as (
                    delete from {leaf} l where l.lease = any (array(select o.lease from o where o.done | o.ended = ~{nobody}))),
                part as (
                    update {leaf} l set done = l.done | o.ended from o -- not by =, for which the table might be joined as a whole
                     where l.lease >= o.lease and l.lease <= o.lease and o.done | o.ended <> ~{nobody} and o.ended <> {nobody}){if kept},
                kept as (
                    {done} select {done row}, d.* from o l cross join lateral (
                        {done jobs} from unnest(l.jobs) j where get_bit(l.ended, (j.lease >> 1 & 255)::int) = 1) d
                     where l.ended <> {nobody}){end if},
                c as materialized (select l.lease, l.ended from o l where pg_sequence_last_value({flags}) & {held} = 0 or {schema}._count_ends({id}, l.jobs, l.ended))
                select c.lease + 2 * i from c cross join generate_series(1, 255) i where get_bit(c.ended, i) = 1;
{end}
                get diagnostics got = row_count;
                todo := todo - got;
                exit when todo <= 0;
            end if;
            if pg_sequence_last_value({flags}) & ({keyed} | {held}) = 0 {if kept}and todo = 1 {end if}then
{leaf of lease}
                return query {with l}delete from {leaf} l where l.lease = any (in_leases) and l.queue + 0 = {id} and l.jobs is null {returning} l.lease{from l};
{end}
                get diagnostics got = row_count;
            else
                ties := pg_sequence_last_value({flags}) & {held} <> 0;
{leaf of lease}
                with d as (delete from {leaf} l where l.lease = any (in_leases) and l.queue + 0 = {id} and l.jobs is null returning {if kept}l.*{end if}{if not kept}l.lease, l.key, l.headers{end if}){if kept},
                kept as ({done several}){end if}
                select array_agg(d.lease), array_agg(distinct d.key) filter (where d.key is not null), count(*), array_agg(d.headers) filter (where ties) into held, keys, got, headers from d;
{end}
                perform {schema}._count_holders({id}, headers, -1, 0) where ties;
                if keys is not null then perform {schema}._promote({id}, keys); end if;
                return query select unnest(held);
            end if;
            todo := todo - got;
            exit when todo <= 0;
        end loop;
        exit when todo <= 0 or turn = pg_sequence_last_value({lease_slot});
    end loop;
    if todo > 0 then perform {schema}._not_moved({id}, in_leases); end if;
end $fn$;

$$,
    $re$\{as one, at ([^}]*)\}$re$, $one$-- A row for the jobs of d, each at its place in it, whose headers name the barrier that all of them hold. It is a row each if they
                    -- are few, or one is large, or if another flag was raised since they were read.
                    alike as (
                        select a.*, a.n >= 8 and a.n = cardinality(a.jobs) and pg_sequence_last_value({flags}) & ~{held} = {plain} as yes
                          from (select count(*) as n, array_agg(row(base + 2 * (\1), coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::{schema}._claimed)
                                                          filter (where octet_length(t.payload) <= 65536) as jobs,
                                       array_agg(t.headers ->> 'penstock-holds') filter (where (select pg_sequence_last_value({flags}) & {held} <> 0)) as holds from d t) a),
                    one as (
                        insert into {schema}._lease (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, headers, jobs)
                        select (select pg_sequence_last_value({lease_slot}) % 2), {id}, base, until, until - lease, coalesce(worker, ''), 0, in_group,
                               case when a.n = most then {first a.n} else ~(select bit_or(set_bit({nobody}, (\1)::int, 1)) from d t) end, {schema}._all_hold(a.holds), a.jobs
                          from alike a where a.yes),
                    each as (
                        insert into {schema}._lease (slot, lease, {lease_columns})
                        select (select pg_sequence_last_value({lease_slot}) % 2), base + 2 * (\1), {lease_row} from d t where (select a.yes from alike a) is not true)$one$, 'g'),
    $re$\{whole of (\w+)\}$re$, $one$with l as ( -- all of a claim, as it came; mostly that row is still as it was written
                delete from {leaf} l where l.lease = \1[1] - 2 and l.queue + 0 = {id}
                   and l.done = ~((~{nobody}) << 256 - cardinality(\1) >> 1) and \1 = array(select generate_series(\1[1], \1[cardinality(\1)], 2))
                returning {if kept}l.*{end if}{if not kept}l.headers, l.jobs{end if}){if kept},
                kept as ({done} select {done row}, d.* from l cross join lateral ({done jobs} from unnest(l.jobs) j where j.lease <= \1[cardinality(\1)]) d){end if}$one$, 'g'),
    '{first a.n}', '~((~{nobody}) << 256 - a.n::int >> 1)');

-- _refuse_claim raises the error of a claim's first argument that is out of its range.
create or replace function _refuse_claim(n int, lease interval, worker text) returns void
language plpgsql immutable set search_path from current as $$ begin
    if (n between 1 and 10000) is not true then
        raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call claim again for more';
    elsif octet_length(worker) > 256 then
        raise exception 'the worker has % bytes, the limit is 256', octet_length(worker) using errcode = '23514', hint = 'use a shorter name';
    end if;
    raise exception 'the lease is %, expected more than nothing and at most 1000 years', coalesce(lease::text, 'null')
    using errcode = '22023', hint = 'give the time a job takes and some more, for example interval ''30 s''';
end $$;

-- _running returns how many jobs of a queue are leased, but for those that acks end.
create or replace function _running(queue int, acks bigint[]) returns int
language plpgsql volatile set search_path from current as $$ declare turn constant bigint := pg_sequence_last_value('_lease_slot'); jobs int; many int := 0; leaf int;
begin
    foreach leaf in array _listed('_lease_slot') loop
        if leaf = 0 then
            select coalesce(sum(case when l.jobs is null then ((l.lease = any (acks)) is not true)::int else 256 - bit_count(l.done) end), 0) into jobs from _lease_0 l where l.queue = _running.queue;
        else
            select coalesce(sum(case when l.jobs is null then ((l.lease = any (acks)) is not true)::int else 256 - bit_count(l.done) end), 0) into jobs from _lease_1 l where l.queue = _running.queue;
        end if;
        many := many + jobs;
    end loop;
    return case when turn <> pg_sequence_last_value('_lease_slot') then _running(queue, acks) else many end; -- the ring may have turned meanwhile
end $$;

-- _not_moved raises an error if a transaction that keeps its snapshot may have missed leases that moved since it began.
-- They were carried over from a segment that is off the list or truncated, to one in which the snapshot does not show
-- them. It compares the catalogue of the snapshot with the current one.
create or replace function _not_moved(queue int, leases bigint[]) returns void
language plpgsql volatile set search_path from current as $$ begin
    if current_setting('transaction_isolation') not in ('repeatable read', 'serializable') then
        return; -- and locks nothing
    end if;
    if exists (select from _lease l
                where l.lease = any (leases || array(select a & -511 from unnest(leases) a)) and l.queue + 0 = _not_moved.queue
                  and (l.jobs is null or exists (select from unnest(leases) a where a & -511 = l.lease and get_bit(l.done, (a >> 1 & 255)::int) = 0)))
       or exists (select from pg_class c where c.oid in ('_lease_0'::regclass, '_lease_1'::regclass) and c.relfilenode <> pg_relation_filenode(c.oid)) then
        raise exception 'could not serialize access: leases may have moved since the transaction began'
        using errcode = '40001', hint = 'run the transaction again';
    end if;
end $$;

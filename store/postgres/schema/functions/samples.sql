-- Samples of queues and subscriptions. About once a minute a maintenance of one of them takes samples of all. They come from
-- registers, cursors and heartbeats, which are there anyway: no job and no message does more for them.
--
-- The register _sampled holds the minute of the last round * 2^34 + the series that was sampled last. All bits of that are set
-- at the end of the round. Queues come first, by id, and subscriptions from 2^33 on.

-- _samples_due returns whether a round of samples is to begin or to continue. It has no search_path, so that it costs no call.
create or replace function _samples_due() returns boolean
language sql volatile
return pg_sequence_last_value('_sampled') is distinct from ((floor(extract(epoch from clock_timestamp()) / 60)::bigint << 34) | 17179869183);

-- _take_samples takes those of a round, and returns whether others are left: it begins no more after 20 ms. With more than 250 series
-- there are fewer rounds, so that a minute adds about 250 rows at most. The register moves first: a series that fails is left out.
-- A round moves on to the other segment once all that is in that one is too old, and truncates both if none are kept.
create or replace function _take_samples() returns boolean
language plpgsql volatile security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$ declare
    whole  constant bigint := 17179869183;
    began  constant timestamptz := clock_timestamp();
    minute constant bigint := floor(extract(epoch from began) / 60);
    kept   constant _sampling := (select k from _sampling k);
    other  constant int := 1 - pg_sequence_last_value('_sample_slot');
    state  bigint;
    one    record;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock('_sample'::regclass::oid::int, 0) or not _samples_due() then return false; end if;
    state := coalesce(pg_sequence_last_value('_sampled'), whole);
    if state & whole = whole then
        state := minute << 34;
        if kept.keep = interval '0' then
            perform _truncate('_sample_' || slot, 'false') from generate_series(0, 1) slot where pg_relation_size('_sample_' || slot) > 0;
        elsif kept.turned not between clock_timestamp() - kept.keep and clock_timestamp() -- the clock may have been set back
              and (pg_relation_size('_sample_' || other) = 0 or _truncate('_sample_' || other, 'false')) then
            perform setval('_sample_slot', other);
            update _sampling set turned = clock_timestamp();
        end if;
        if kept.keep = interval '0' or minute % (1 + ((select count(*) from _queue) + (select count(*) from _subscription)) / 250) <> 0 then
            perform setval('_sampled', state | whole);
            return false;
        end if;
    end if;
    for one in
        select x.* from (select q.id::bigint as place, q as queue, null::_subscription as subscription from _queue q
                         union all
                         select 8589934592 + s.id, null, s from _subscription s) x
         where x.place > state & whole order by x.place
    loop
        state := (state >> 34 << 34) | one.place;
        perform setval('_sampled', state);
        if one.place < 8589934592 then
            perform _sample_queue(one.queue);
        else
            perform _sample_subscription(one.subscription);
        end if;
        if clock_timestamp() > began + interval '20 ms' then return true; end if;
    end loop;
    perform setval('_sampled', state | whole);
    return false;
end $$;

-- _sample_queue takes the sample of a queue. Where many rows are dead, the search for the oldest ready job may take long. For each 20 ms of it the
-- oldest of the sample before is repeated once, up to 60 times. The attempts that ended are those that workers' heartbeats count since the last
-- sample. Of each start of a worker that is the last figure up to now, less the last one up to then.
--
-- In a queue that keeps done jobs it also describes those since the last sample that are in the last 16 pages. It notes how many there are, and
-- p50 and p99, in seconds, of their runs and of the waits for first attempts. It does so for all, and for the four most frequent kinds and workers.
create or replace function _sample_queue(q _queue) returns void
language plpgsql volatile set search_path from current as $$ declare
    last    constant _sample := (select s from _sample s where s.series = q.id order by s.at desc limit 1);
    since   constant timestamptz := coalesce(last.at, '-infinity');
    began   constant timestamptz := clock_timestamp();
    oldest  real;
    pause   int := last.pause - 1;
    n       record;
    done    jsonb;
    kept    text;
begin
    select coalesce(sum(greatest(w.ended, 0)), 0) as ended, coalesce(sum(greatest(w.failed, 0)), 0) as failed into n
      from (select max(h.ended) - coalesce(max(h.ended) filter (where h.at <= since), min(h.ended)) as ended,
                   max(h.failed) - coalesce(max(h.failed) filter (where h.at <= since), min(h.failed)) as failed
              from (select l.worker, l.report ->> 'started_at' as started, l.claimed_at as at,
                           _figure(l.report, 'done') as ended, _figure(l.report, 'failed') + _figure(l.report, 'dead') as failed
                      from _lease l where l.queue = -q.id and l.lease_until > since order by l.lease_until desc limit 5000) h
             group by h.worker, h.started) w;
    if pause >= 0 then
        oldest := last.oldest;
    else
        oldest := (_count(q.id, 1000))[6] / 1000000.0;
        pause := least(extract(epoch from clock_timestamp() - began) * 50, 60);
    end if;
    if q.done_since is not null then
        kept := _q(format('_%s.done_%s', q.name, pg_sequence_last_value(_q(format('_%s.done_turn', q.name))::regclass) % 8));
        execute format($sql$
            select jsonb_agg(jsonb_build_object('of', x.of, 'name', x.name, 'jobs', x.jobs, 'wait', array(select round(s::numeric, 4) from unnest(x.wait) s),
                                                'run', array(select round(s::numeric, 4) from unnest(x.run) s)))
              from (select g.*, row_number() over (partition by g.of order by g.jobs desc, g.name) as place
                      from (select (array['kind', 'worker', ''])[grouping(d.kind, d.worker)] as of, coalesce(d.kind, d.worker, '') as name, count(*) as jobs,
                                   percentile_cont('{.5,.99}'::float8[]) within group (order by d.wait) as wait, percentile_cont('{.5,.99}'::float8[]) within group (order by d.run) as run
                              from (select left(coalesce(j.kind, ''), 64) as kind, left(t.worker, 64) as worker, extract(epoch from t.finished_at - t.claimed_at)::float8 as run,
                                           case when j.attempt = 1 and isfinite(j.created_at) then extract(epoch from t.claimed_at - j.created_at)::float8 end as wait
                                      from %s t cross join lateral (
                                           select t.attempt, t.created_at, t.kind where t.id is not null
                                           union all
                                           select u.* from unnest(t.attempts, t.created, t.kinds) u) j(attempt, created_at, kind)
                                     where t.ctid >= $1 and t.finished_at > $2 and t.claimed_at is not null) d
                             group by grouping sets ((), d.kind, d.worker)) g where g.jobs > 0) x where x.place < 5$sql$, kept)
           into done using format('(%s,0)', greatest(pg_relation_size(kept) / current_setting('block_size')::int - 16, 0))::tid, since;
    end if;
    insert into _sample (series, arrived, ended, failed, oldest, pause, done, dead)
    values (q.id, coalesce(pg_sequence_last_value(to_regclass(_q(format('_%s.seq', q.name)))), 0), coalesce(last.ended, 0) + n.ended, coalesce(last.failed, 0) + n.failed,
            oldest, pause, done, (select count(*) from (select from _dead_job d where d.queue = q.id limit 1000) x));
end $$;

-- _figure returns a figure of a worker's report, 0 if that has none of the name: any client may have written it.
create or replace function _figure(report jsonb, name text) returns bigint
language sql immutable
return case when report ->> name ~ '^\d{1,15}$' then (report ->> name)::bigint else 0 end;

-- _sample_subscription takes the sample of a subscription. In a restored database the oldest unsettled message is not known until a relay has been there.
create or replace function _sample_subscription(s _subscription) returns void
language plpgsql volatile set search_path from current as $$ declare
    c      constant _cursor := (select h from _head(s.id) h);
    oldest timestamptz;
begin
    if c.system = (select system_identifier from pg_control_system()) then -- as _unsettled_in
        execute format($sql$
            select min(x.created_at) from (
                (select e.created_at from %1$s e where e.xid = any ($1) and e.seq + 0 <= $2 and not e.seq <@ $6)
                union all
                (select e.created_at from %1$s e
                  where e.seq > $2 and not pg_visible_in_snapshot(e.xid, $3) and not (pg_visible_in_snapshot(e.xid, $4) and e.seq <= $5) and not e.seq <@ $6
                  order by e.seq limit 1)) x$sql$, _q(s.outbox))
           into oldest
          using array(select pg_snapshot_xip(coalesce(c.upto, c.done))), least(c.pos, coalesce(c.upto_low, c.low)), c.done, coalesce(c.upto, c.done),
                coalesce(c.pos, 9223372036854775807), c.ahead;
    end if;
    insert into _sample (series, arrived, ended, failed, oldest, dead)
    values (-s.id, coalesce(pg_sequence_last_value(to_regclass(_q(format('_%s.seq', s.outbox)))), 0), coalesce(c.settled, 0), 0,
            coalesce(extract(epoch from greatest(clock_timestamp() - oldest, interval '0')), 0),
            (select count(*) from (select from _dead_letter d where d.subscription = s.id limit 1000) x));
end $$;

-- _subscription_samples returns the samples of subscriptions that are not older, to the owner and to relays.
create or replace function _subscription_samples(last interval)
returns table (outbox text, subscription text, at timestamptz, arrived bigint, ended bigint, failed bigint, dead int, oldest float8)
language sql volatile security definer set search_path from current as $$
    select s.outbox, s.name, x.at, x.arrived, x.ended, x.failed, x.dead, x.oldest
      from _subscription s cross join lateral (select * from _sample x where x.series = -s.id and x.at > clock_timestamp() - last order by x.at) x
     order by s.outbox collate "C", s.name collate "C", x.at $$;

create or replace function keep_samples(keep interval) returns void
language plpgsql set search_path from current as $$ begin
    if (keep between interval '0' and interval '7 days') is not true then
        raise exception 'samples are to be kept for %, expected nothing to 7 days', coalesce(keep::text, 'null') using errcode = '22023', hint = 'for example interval ''3 hours''; interval ''0'' takes none';
    end if;
    update _sampling s set keep = keep_samples.keep;
end $$;

comment on function keep_samples is 'Changes for how long samples of queues and subscriptions are kept: 3 hours, or up to twice as long, unless it is changed. 0 takes none, and removes those that are there within about a minute. Error: 22023.';

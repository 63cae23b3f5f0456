-- Periodic jobs: a queue's maintenance enqueues those that are due.

-- _cron_field returns the values that a field of a cron text allows, ascending; null if the field is invalid. names
-- stand for lo, lo + 1, ...
create or replace function _cron_field(field text, lo int, hi int, names text[]) returns int[]
language plpgsql immutable set search_path from current as $$ declare
    part  text;
    m     text[];
    first int;
    last  int;
    step  int;
    all_  int[] := '{}';
begin
    foreach part in array string_to_array(lower(field), ',') loop
        m := regexp_match(part, $re$^(\*|([0-9]{1,2}|[a-z]{3})(-([0-9]{1,2}|[a-z]{3}))?)(/([0-9]{1,2}))?\Z$re$);
        if m is null then return null; end if;
        if m[1] = '*' then
            first := lo;
            last := hi;
        else
            first := case when m[2] ~ '^[0-9]' then m[2]::int else array_position(names, m[2]) - 1 + lo end;
            last := case when m[4] is null then case when m[6] is null then first else hi end
                         when m[4] ~ '^[0-9]' then m[4]::int else array_position(names, m[4]) - 1 + lo end;
        end if;
        step := coalesce(m[6], '1')::int;
        if (first between lo and last and last <= hi and step > 0) is not true then return null; end if;
        all_ := all_ || array(select generate_series(first, last, step));
    end loop;
    return array(select distinct x from unnest(all_) x order by x);
end $$;

-- _cron_next returns the first time after the given one that a cron text describes. Its fields are minute hour
-- day-of-month month day-of-week, in UTC or in the zone that a TZ= before them names. As in Vixie's cron, either day is
-- enough unless one of the two fields begins with *, also as */2: then both must hold. A time that the clocks leave out
-- when they are put forward comes as much later. Of one that they show twice the second counts; both do if the hour
-- begins with *. The rules of internal/cron are the same. Error: 22023.
create or replace function _cron_next(cron text, after timestamptz) returns timestamptz
language plpgsql stable set search_path from current as $$ declare
    zone   text := coalesce((regexp_match(cron, $re$^\s*TZ=(\S+)\s$re$))[1], 'UTC');
    times  text := btrim(regexp_replace(cron, $re$^\s*TZ=\S+\s$re$, ''), E' \t\r\n');
    fields text[] := regexp_split_to_array(case lower(times)
                         when '@hourly' then '0 * * * *' when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *'
                         when '@weekly' then '0 0 * * 0' when '@monthly' then '0 0 1 * *'
                         when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *' else times end, $re$\s+$re$);
    minute int[]; hour int[]; dom int[]; month int[]; dow int[]; wrong int;
    start  timestamptz := (date_trunc('minute', after at time zone 'UTC') + interval '1 min') at time zone 'UTC';
    day    timestamp;
    found  timestamptz;
begin
    begin
        day := date_trunc('day', start at time zone zone);
    exception when invalid_parameter_value then
        day := null;
    end;
    if day is null or zone <> 'UTC' and zone !~ $re$^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)+\Z$re$ then
        raise exception 'the cron text % makes no sense: there is no time zone %', quote_literal(cron), quote_literal(zone)
        using errcode = '22023', hint = 'name one as in TZ=Europe/Berlin 30 4 * * 1-5, or leave it out for UTC';
    end if;
    if cardinality(fields) = 5 then
        minute := _cron_field(fields[1], 0, 59, '{}');
        hour   := _cron_field(fields[2], 0, 23, '{}');
        dom    := _cron_field(fields[3], 1, 31, '{}');
        month  := _cron_field(fields[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
        dow    := _cron_field(fields[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
    end if;
    wrong := array_position(array[minute is null, hour is null, dom is null, month is null, dow is null], true); -- the field
    if wrong > 0 then
        raise exception 'the cron text % makes no sense%', coalesce(quote_literal(cron), 'null'), case when cardinality(fields) = 5 then format(': %L is not a valid %s', fields[wrong], ('{minute,hour,day of month,month,day of week}'::text[])[wrong]) else format(': five fields are needed, and it has %s', case times when '' then 0 else coalesce(cardinality(fields), 0) end) end
        using errcode = '22023', hint = 'give minute, hour, day of month, month and day of week, like ''30 4 * * 1-5'', or @hourly, @daily, @weekly, @monthly, @yearly; there is no @every: every five minutes is ''*/5 * * * *''';
    end if;
    if 7 = any (dow) then dow := dow || 0; end if;
    -- Nine years hold a leap day, also around the year 2100.
    for day in select d from generate_series(day - interval '1 day', day + interval '9 years', interval '1 day') d
                where extract(month from d)::int = any (month)
                  and case when fields[3] like '*%' or fields[5] like '*%'
                           then extract(day from d)::int = any (dom) and extract(dow from d)::int = any (dow)
                           else extract(day from d)::int = any (dom) or extract(dow from d)::int = any (dow) end
                limit 3 loop
        select min(t.at) into found
          from unnest(hour) h, unnest(minute) i, make_timestamp(extract(year from day)::int, extract(month from day)::int, extract(day from day)::int, h, i, 0) shown,
               lateral (select shown at time zone zone
                        union all
                        select u.at from unnest('{30 min,1 h}'::interval[]) by, lateral (select shown at time zone zone - by) u(at)
                         where zone <> 'UTC' and fields[2] like '*%' and u.at at time zone zone = shown) t(at)
         where t.at >= start;
        if found is not null then return found; end if;
    end loop;
    raise exception 'the cron text % describes a time that never comes', quote_literal(cron)
    using errcode = '22023', hint = 'look at the day and the month';
end $$;

create or replace function schedule_bytes(queue text, name text, cron text, payload bytea, key text default null, group_key text default '',
                         priority int default 0, headers jsonb default null, dedup_key text default null, kind text default null,
                         skip_overlap boolean default false) returns timestamptz
language plpgsql set search_path from current as $$ declare q _queue := _queue_named(queue); first timestamptz := _cron_next(cron, clock_timestamp());
begin
    headers := _with_options(headers, kind, null, null, null, null, null, null);
    perform _refuse_job(payload, coalesce(key, headers ->> 'penstock-unique-key'), group_key, priority, headers, dedup_key),
            case when getdatabaseencoding() not in ('UTF8', 'SQL_ASCII') then convert_to(concat(key, group_key, dedup_key, headers), 'UTF8') end; -- see _readable
    if headers ?| '{penstock-holds,penstock-waits-for}' then
        raise exception 'the job of a schedule has barriers' using errcode = '23514', hint = 'schedule a job that makes a barrier and enqueues the others';
    elsif (octet_length(name) between 1 and 128) is not true then
        raise exception 'the schedule''s name has % bytes, expected 1 to 128', coalesce(octet_length(name), 0) using errcode = '23514', hint = 'use a shorter one';
    end if;
    insert into _schedule as s (queue, name, cron, next, priority, group_key, key, dedup_key, headers, payload, skip_overlap)
    select x.id, schedule_bytes.name, cron, first, coalesce(priority, 0), coalesce(group_key, ''), key, dedup_key, headers, payload, coalesce(skip_overlap, false) from _queue x where x.id = q.id for key share
    on conflict on constraint _schedule_pkey do update set cron = excluded.cron, priority = excluded.priority, group_key = excluded.group_key, key = excluded.key, dedup_key = excluded.dedup_key,
        headers = excluded.headers, payload = excluded.payload, skip_overlap = excluded.skip_overlap,
        next = case when s.cron = excluded.cron then s.next else excluded.next end
    returning s.next into first;
    if not found then return schedule_bytes(queue, name, cron, payload, key, group_key, priority, headers, dedup_key, null, skip_overlap); end if; -- it was dropped meanwhile
    return first;
end $$;

comment on function schedule_bytes is 'Makes or changes a periodic job: one is enqueued at every time that cron describes, unless dedup_key makes it a duplicate. With skip_overlap a time is left out while the schedule''s last job has not ended. A paused schedule stays paused. Errors: 42P01, 22023 for a cron text that makes no sense or a time that never comes, 23514 for a value over its limit.';

create or replace function schedule(queue text, name text, cron text, payload text, key text default null, group_key text default '',
                         priority int default 0, headers jsonb default null, dedup_key text default null, kind text default null,
                         skip_overlap boolean default false) returns timestamptz
language sql set search_path from current
as $$ select schedule_bytes(queue, name, cron, convert_to(payload, 'UTF8'), key, group_key, priority, headers, dedup_key, kind, skip_overlap) $$;

comment on function schedule(text, text, text, text, text, text, int, jsonb, text, text, boolean) is 'Makes or changes a periodic job whose payload is text, as UTF-8. Otherwise it is like schedule_bytes.';

create or replace function schedule(queue text, name text, cron text, payload jsonb, key text default null, group_key text default '',
                         priority int default 0, headers jsonb default null, dedup_key text default null, kind text default null,
                         skip_overlap boolean default false) returns timestamptz
language sql set search_path from current
as $$ select schedule_bytes(queue, name, cron, convert_to(payload::text, 'UTF8'), key, group_key, priority, headers, dedup_key, kind, skip_overlap) $$;

comment on function schedule(text, text, text, jsonb, text, text, int, jsonb, text, text, boolean) is 'Makes or changes a periodic job whose payload is JSON, as UTF-8. Otherwise it is like schedule_bytes.';

-- _schedule_named locks a schedule until the transaction ends and returns it, or raises 42P01 or 42704.
create or replace function _schedule_named(queue text, name text) returns _schedule
language plpgsql volatile set search_path from current as $$ declare
    q constant _queue := _queue_named(queue);
    s _schedule;
begin
    select * into s from _schedule x where x.queue = q.id and x.name = _schedule_named.name for update;
    if not found then
        raise exception 'the queue % has no schedule %', quote_literal(queue), coalesce(quote_literal(name), 'null')
        using errcode = '42704', hint = 'list them with: penstock schedule list ' || quote_literal(queue);
    end if;
    return s;
end $$;

create or replace function unschedule(queue text, name text) returns void
language plpgsql set search_path from current as $$ declare s constant _schedule := _schedule_named(queue, name);
begin
    delete from _schedule x where x.queue = s.queue and x.name = s.name;
end $$;

comment on function unschedule is 'Ends a periodic job. Errors: 42P01, 42704 if there is none of the name.';

create or replace function pause_schedule(queue text, name text) returns void
language plpgsql set search_path from current as $$ declare s constant _schedule := _schedule_named(queue, name);
begin
    update _schedule x set paused = true where x.queue = s.queue and x.name = s.name;
end $$;

comment on function pause_schedule is 'Pauses a periodic job: none is enqueued until resume_schedule. Errors: 42P01, 42704 if there is none of the name.';

create or replace function resume_schedule(queue text, name text) returns timestamptz
language plpgsql set search_path from current as $$ declare
    s constant _schedule := _schedule_named(queue, name);
    first timestamptz := s.next;
begin
    if s.paused then
        update _schedule x set paused = false, next = greatest(x.next, _cron_next(x.cron, clock_timestamp())) where x.queue = s.queue and x.name = s.name
        returning x.next into first;
    end if;
    return first;
end $$;

comment on function resume_schedule is 'Ends the pause of a periodic job and returns its next time: no job makes up for the times that have passed. Errors: 42P01, 42704 if there is none of the name.';

create or replace function run_schedule(queue text, name text) returns bigint
language sql set search_path from current as $$ select _run_schedule(queue, _schedule_named(queue, name)) $$;

comment on function run_schedule is 'Enqueues the job of a schedule now, also while it is paused or its last job has not ended, and returns the job''s id. Its next time stays. Errors: 42P01, 42704 if there is none of the name.';

-- _run_schedule enqueues the job of a schedule, which the caller has locked, and notes it as the last one.
create or replace function _run_schedule(queue text, s _schedule) returns bigint
language plpgsql volatile set search_path from current
as $$ declare made constant bigint := enqueue_bytes(queue, s.payload, s.key, s.group_key, s.priority, null, s.dedup_key, s.headers);
begin
    update _schedule x set last_job = made, last_group = s.group_key, last_priority = s.priority where x.queue = s.queue and x.name = s.name;
    return made;
end $$;

-- _overlaps returns whether the last job of a schedule has not ended. It looks for a ready job in its group and priority, as the
-- ring has no index of ids, and for one that came back by its id. One statement locks all segments before it takes its
-- snapshot, so that it finds a job that moves meanwhile.
create or replace function _overlaps(queue text, s _schedule) returns boolean
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$ declare there boolean;
begin
    execute format($sql$
        select exists (select from %1$s t where t.group_key = $2 and t.priority = $3 and t.seq = $4 and t.id is null)
            or exists (select from %1$s t where t.id = $4)
            or exists (select from _scheduled w where w.queue = $1 and w.id = $4)
            or exists (select from _lease l where l.queue = $1 and (l.id = $4
                or exists (select from unnest(l.jobs) j where j.id = $4 and get_bit(l.done, (j.lease >> 1 & 255)::int) = 0)))$sql$, _q(queue))
       into there using s.queue, s.last_group, s.last_priority, s.last_job;
    return there;
end $$;

create or replace function schedules(queue text)
returns table (name text, cron text, next timestamptz, paused boolean, skip_overlap boolean, last_job bigint, kind text, key text, group_key text, priority smallint, headers jsonb, dedup_key text, payload bytea)
language sql stable set search_path from current as $$
    select s.name, s.cron, s.next, s.paused, s.skip_overlap, s.last_job, coalesce(s.headers ->> 'penstock-kind', ''), s.key, s.group_key, s.priority, s.headers, s.dedup_key, s.payload
      from _schedule s where s.queue = (_queue_named(schedules.queue)).id order by s.name collate "C" $$;

comment on function schedules is 'Lists the periodic jobs of a queue, by name, with the time at which each runs next and the id of the last job that it has made. Error: 42P01.';

-- A right to a queue is a right to a function, as PostgreSQL checks it (docs/decisions/0011). A shared function that a role may
-- be granted has a door. This is a function that is made for the queue, runs as the schema's owner and calls the shared one,
-- which no other role may. Those of workers are PL/pgSQL, whose plan a session keeps.

insert into _template (kind, name, body) select 'queue', 'door', $$

-- {extend} makes leases end by from now, and returns those that were still held, with their new end.
create or replace function {extend}(leases bigint[], by interval) returns table (lease bigint, until timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $fn$ begin return query select * from {schema}._extend({id}, leases, by); end $fn$;

-- {report} notes a job's report, and returns when its lease ends, null if that is lost.
create or replace function {report}(lease bigint, report jsonb) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $fn$ begin return {schema}._report({id}, lease, report); end $fn$;

-- {release} gives jobs back, to run again after a while, and returns the leases that were still held.
create or replace function {release}(leases bigint[], after interval) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $fn$ begin return query select {schema}._release({id}, leases, after); end $fn$;

-- {fail} ends an attempt that failed, see _fail.
create or replace function {fail}(lease bigint, after interval, error text, final boolean) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $fn$ begin return {schema}._fail({id}, lease, after, error, final); end $fn$;

-- {maintain} does the maintenance of the queue at once, see _maintain.
create or replace function {maintain}() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $fn$ begin perform {schema}._maintain({id}, true); end $fn$;

-- {pause} notes in the queue's row that claims and dequeues return no job, or ends that. It locks the row until the transaction ends.
create or replace function {pause}(paused boolean) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ update {schema}._queue set paused = $1 where id = {id}; select {schema}._watch({id}) $fn$;

-- {set_group} replaces the policy of a group, see _set_group.
create or replace function {set_group}(group_key text, max_running int, rate int, per interval, burst int, weight int) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._set_group({id}, group_key, max_running, rate, per, burst, weight) $fn$;

-- {hold_group} holds a group, or releases it.
create or replace function {hold_group}(group_key text, hold_for interval, reason text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._hold_group({id}, group_key, hold_for, reason) $fn$;

-- {group_limits} lists limits of groups, see _group_limits.
create or replace function {group_limits}(group_keys text[], after text, most int)
returns table (group_key text, max_running int, rate int, per interval, burst int, weight int, tokens int, held_until timestamptz, reason text)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select * from {schema}._group_limits({id}, group_keys, after, most) $fn$;

-- {cancel} removes jobs wherever they are, see _cancel. A role that may call it looks after the queue: the policy of _dead_job asks for that.
create or replace function {cancel}(ids bigint[]) returns int
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._cancel({id}, ids) $fn$;

-- {retry_dead} has dead letters run again, and returns how many.
create or replace function {retry_dead}(ids bigint[]) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._retry_dead_jobs({id}, ids) $fn$;

-- {discard_dead} removes dead letters, and returns how many.
create or replace function {discard_dead}(ids bigint[]) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
    with d as (delete from {schema}._dead_job where queue = {id} and id = any (ids) returning headers)
    select count(*) from d having {schema}._count_holders({id}, array_agg(d.headers), 0, -1)
$fn$;

-- {count} counts jobs by where they are, see _count.
create or replace function {count}(most int) returns bigint[]
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._count({id}, most) $fn$;

-- {count_groups} counts the jobs of each group, see _count_groups: of what is leased, is to come later or is dead 10,000 each.
create or replace function {count_groups}(after text, most int)
returns table (group_key text, ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest bigint, more boolean)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
    select g.group_key, g.ready, g.running, g.delayed, g.waiting, g.dead, g.oldest, g.more or g.cut from {schema}._count_groups({id}, after, most, 10000) g order by g.group_key
$fn$;

-- {done_jobs} lists done jobs that are kept, see _done_jobs.
create or replace function {done_jobs}(most int, before text, ids bigint[]) returns jsonb
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._done_jobs({id}, most, before, ids) $fn$;

-- {find} returns where a job is, see _find_job.
create or replace function {find}(id bigint) returns jsonb
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._find_job({id}, id) $fn$;

$$;

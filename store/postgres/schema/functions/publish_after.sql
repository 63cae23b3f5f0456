-- Messages that wait for barriers, see barriers.sql.

-- A message that waits for barriers is a row of _scheduled like a job, of priority 16. No job has that, and no ring takes it. So only _put_off_message writes one, which
-- has looked at the rights of the role. The fields of the message are in one header, because its headers may be options of a job that it becomes later.
--
-- Such a row is written through this view, because a trigger with the owner's rights does not know its caller. The column role does: all may insert, but not into it.
-- An INSERT first goes to the trigger of outboxes, which validates it.
create or replace view _waiting_message as
    select null::text as queue, null::bigint[] as waits_for, null::text as on_dead, null::text as outbox, null::text as id, null::text as key, null::text as topic, null::jsonb as headers, null::bytea as payload,
           null::name as role, null::bigint as job where false;

alter view _waiting_message alter column role set default current_user;

comment on view _waiting_message is 'Takes the messages that wait for barriers, from publish_after. It has no rows.';
comment on column _waiting_message.role is 'who inserts; no role may give another';
comment on column _waiting_message.job is 'the id, in the queue, of the message that was written';

-- _put_off_message writes a message that waits, and returns its number.
create or replace function _put_off_message() returns trigger
language plpgsql volatile security definer set search_path from current as $$
declare
    q      constant _queue := _queue_named(new.queue);
    waits  constant jsonb := _with_options(null, null, null, null, null, null, null, null, null, new.waits_for, new.on_dead);
    denied constant text := case when not has_function_privilege(new.role, to_regproc(_q(format('_%s.enqueue', q.name))), 'execute') then 'queue ' || q.name
                                 when exists (select from _outbox o cross join unnest('{id,key,topic,headers,payload}'::text[]) c where o.name = new.outbox and not has_column_privilege(new.role, _q(o.name), c, 'insert'))
                                 then 'outbox ' || new.outbox end;
begin
    if denied is not null then
        raise exception 'permission denied for %', denied using errcode = '42501', hint = 'the role needs the rights that grant_enqueuer gives for the queue, and grant_producer for the outbox';
    elsif not exists (select from _outbox o where o.name = new.outbox) then
        raise exception 'there is no outbox %', coalesce(quote_literal(new.outbox), 'null') using errcode = '42P01', hint = 'create it with: penstock outbox create ' || coalesce(quote_literal(new.outbox), 'NAME');
    elsif waits ? 'penstock-waits-for' is not true then
        raise exception 'waits_for is empty' using errcode = '23514', hint = 'give the barriers to wait for, or publish the message';
    end if;
    perform _refuse_options(waits, null), pg_current_xact_id(); -- before a seq, see create_queue
    new.job := nextval(_q(format('_%s.seq', q.name)));
    perform _put_off(q.id, clock_timestamp(), array[new.job], '{f}', array[new.payload], array[new.key], '{null}', '{16}', '{null}', array[waits || jsonb_build_object('penstock-kind', 'publish to ' || new.outbox,
        'penstock-message', jsonb_build_object('outbox', new.outbox, 'id', new.id, 'topic', new.topic, 'headers', new.headers)::text)]);
    return new;
end $$;

create or replace trigger a_validate instead of insert on _waiting_message for each row execute function _validate_message();

create or replace trigger b_put_off instead of insert on _waiting_message for each row execute function _put_off_message();

create or replace function publish_after(queue text, waits_for bigint[], outbox text, payload anycompatible, key text default null, topic text default '',
                        headers jsonb default null, id text default null, on_dead text default null) returns bigint
language sql volatile set search_path from current as $$
    insert into _waiting_message (queue, waits_for, outbox, payload, key, topic, headers, id, on_dead)
    values (queue, waits_for, outbox, case (select t.typoutput from pg_type t where t.oid = pg_typeof(payload)) when 'byteaout'::regproc then payload::text::bytea else convert_to(payload::text, 'UTF8') end, key, coalesce(topic, ''), headers, id, on_dead)
    returning job $$;

comment on function publish_after is 'Publishes a message of text, JSON or bytes once barriers of a queue are open: in the transaction that opens the last one. Until then it is listed and counted with the jobs of the queue that wait. Returns the id by which it can be cancelled. If a job that holds one of the barriers is dead, on_dead decides, as in enqueue_bytes. With cancel the message becomes a dead letter of the queue, which is published if it is retried. So does a message that the outbox refuses then. Errors: those of publish_bytes, and of enqueue_bytes for the barriers; 42501 if the role may not publish to the outbox, or not enqueue in the queue.';

-- _publish_rows publishes messages, those of an outbox in the order of their ids, and returns how many. They wait in _scheduled, or are dead letters, as source says: a copy
-- on the way would leave a dead row in _dead_job for each. One that is refused, or whose outbox is not there any more, becomes a dead letter with the reason: the end
-- of a job must not fail for ever. A locked outbox or a full disk fails it, and it can be repeated.
create or replace function _publish_rows(in_queue int, ids bigint[], source regclass) returns bigint
language plpgsql volatile set search_path from current as $$
declare
    half constant int := cardinality(ids) / 2;
    bury constant text := format($sql$
        with d as (delete from %s r where r.queue = $1 and r.id = any ($2) and r.priority = 16 returning r.*)
        insert into _dead_job (queue, id, attempt, created_at, priority, group_key, key, headers, payload, failures)
        select d.queue, d.id, d.attempt, d.created_at, d.priority, d.group_key, d.key, d.headers - '{penstock-waits-for,penstock-on-dead}'::text[], d.payload, _failed(d.failures, d.attempt, 'not published: ' || $3) from d$sql$, source);
    outbox text; here bigint[]; n bigint; many bigint := 0;
begin
    for outbox, here in execute format('select (r.headers ->> %L)::jsonb ->> %L, array_agg(r.id) from %s r where r.queue = $1 and r.id = any ($2) and r.priority = 16 group by 1', 'penstock-message', 'outbox', source) using in_queue, ids loop
        if not exists (select from _outbox o where o.name = outbox) then
            execute bury using in_queue, here, format('there is no outbox %L', outbox);
        else
            execute format($sql$
                with d as (delete from %s r where r.queue = $1 and r.id = any ($2) and r.priority = 16 returning r.*, (r.headers ->> 'penstock-message')::jsonb as m)
                insert into %s (id, key, topic, headers, payload) select d.m ->> 'id', d.key, d.m ->> 'topic', nullif(d.m -> 'headers', 'null'), d.payload from d order by d.id$sql$, source, _q(outbox)) using in_queue, here;
            get diagnostics n = row_count;
            many := many + n;
        end if;
    end loop;
    return many;
exception when others or assert_failure then
    if sqlstate ~ '^(40|53|55P03|57|58)' then
        raise;
    elsif half > 0 then
        return _publish_rows(in_queue, ids[1:half], source) + _publish_rows(in_queue, ids[half + 1:], source);
    end if;
    execute bury using in_queue, ids, sqlerrm;
    return 0;
end $$;

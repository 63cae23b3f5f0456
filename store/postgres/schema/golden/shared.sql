-- What is there once, with the functions that take a name. As it stands in the database, with the comments of store/postgres/schema; TestGolden compares it, and -update writes it.

create type penstock._claimed as (
    lease bigint,
    id bigint,
    created_at timestamp with time zone,
    attempt integer,
    headers jsonb,
    payload bytea,
    failures jsonb
);

create type penstock.held_message as (
    message_id text,
    key text,
    previous_id text,
    previous_held boolean,
    held_at timestamp with time zone,
    due timestamp with time zone,
    headers jsonb,
    payload_bytes bigint,
    payload bytea
);

create type penstock.inbox_gap as (
    missing text,
    key text,
    followed_by text,
    reported_at timestamp with time zone,
    discarded boolean,
    came boolean
);

create type penstock.inboxed as (
    message_id text,
    key text,
    headers jsonb,
    payload bytea,
    gap boolean,
    missing text,
    late boolean
);

create type penstock.job as (
    id bigint,
    key text,
    group_key text,
    priority smallint,
    attempt integer,
    created_at timestamp with time zone,
    headers jsonb,
    payload bytea
);

create type penstock.leased_job as (
    id bigint,
    key text,
    group_key text,
    priority smallint,
    attempt integer,
    created_at timestamp with time zone,
    headers jsonb,
    payload bytea,
    lease bigint,
    lease_until timestamp with time zone
);

create table penstock._adopt_log (
    subscription bigint not null,
    epoch bigint not null,
    n bigint not null default nextval('penstock._adopt_n'::regclass),
    at timestamp with time zone not null default clock_timestamp(),
    lease_until timestamp with time zone not null,
    since timestamp with time zone not null,
    settled bigint not null,
    workers boolean not null,
    holder text not null,
    ordered_by text[] not null,
    low text[],
    sink_down timestamp with time zone,
    sink_error text not null default ''::text
);
CREATE INDEX _adopt_log_subscription_epoch_n_idx ON penstock._adopt_log USING btree (subscription, epoch, n);
alter table penstock._adopt_log replica identity full;

create table penstock._adopt_row (
    subscription bigint not null,
    row_id text collate "C" not null,
    seq bigint not null,
    parked_key text collate "C" not null,
    message_id text not null,
    key text not null,
    topic text not null,
    attempt integer not null,
    failures jsonb not null,
    failed_since timestamp with time zone,
    due timestamp with time zone,
    died_at timestamp with time zone,
    out_of_order boolean not null,
    held boolean not null default false,
    retry boolean not null default false,
    PRIMARY KEY (subscription, row_id)
);
CREATE INDEX _adopt_row_subscription_due_seq_idx ON penstock._adopt_row USING btree (subscription, due, seq) WHERE (due IS NOT NULL);
CREATE INDEX _adopt_row_subscription_parked_key_seq_idx ON penstock._adopt_row USING btree (subscription, parked_key, seq);
CREATE INDEX _adopt_row_subscription_seq_idx ON penstock._adopt_row USING btree (subscription, seq) WHERE retry;
CREATE INDEX _adopt_row_subscription_seq_idx1 ON penstock._adopt_row USING btree (subscription, seq) WHERE (died_at IS NOT NULL);

create table penstock._adopt_subscription (
    id bigint generated always as identity,
    name text not null,
    source text not null,
    mark text not null,
    created_at timestamp with time zone not null default now(),
    CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128))),
    UNIQUE (name),
    PRIMARY KEY (id)
);
CREATE INDEX _adopt_subscription_source_idx ON penstock._adopt_subscription USING btree (source);

create table penstock._cursor (
    subscription bigint not null,
    epoch bigint not null,
    n bigint not null default nextval('penstock._cursor_n'::regclass),
    at timestamp with time zone not null default clock_timestamp(),
    lease_until timestamp with time zone not null,
    since timestamp with time zone not null,
    low bigint not null,
    upto_low bigint,
    pos bigint,
    settled bigint not null,
    system bigint not null,
    slot smallint not null default (pg_sequence_last_value('penstock._cursor_slot'::regclass))::smallint,
    holder text not null,
    done pg_snapshot not null,
    upto pg_snapshot,
    timeline integer,
    ahead int8multirange not null default '{}'::int8multirange
) partition by LIST (slot);
CREATE INDEX _cursor_subscription_epoch_n_idx ON ONLY penstock._cursor USING btree (subscription, epoch, n);

create table penstock._cursor_0 partition of penstock._cursor FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._cursor_0 replica identity full;

create table penstock._cursor_1 partition of penstock._cursor FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._cursor_1 replica identity full;

create table penstock._dead_job (
    queue integer not null,
    id bigint not null,
    attempt integer not null,
    created_at timestamp with time zone not null,
    died_at timestamp with time zone not null default clock_timestamp(),
    priority smallint not null,
    group_key text not null,
    key text,
    headers jsonb,
    payload bytea not null,
    failures jsonb not null,
    PRIMARY KEY (queue, id),
    FOREIGN KEY (queue) REFERENCES penstock._queue(id) ON DELETE CASCADE
);
alter table penstock._dead_job enable row level security;
create policy operator on penstock._dead_job for select using ((queue IN ( SELECT q.id
   FROM penstock._queue q
  WHERE has_function_privilege((to_regproc(penstock._q(format('_%s.cancel'::text, q.name))))::oid, 'execute'::text))));

create table penstock._dead_letter (
    subscription bigint not null,
    seq bigint not null,
    id text,
    key text,
    topic text not null,
    headers jsonb,
    payload bytea not null,
    created_at timestamp with time zone not null,
    attempt integer not null,
    failures jsonb not null,
    failed_since timestamp with time zone,
    died_at timestamp with time zone not null default clock_timestamp(),
    held boolean not null default false,
    retry boolean not null default false,
    PRIMARY KEY (subscription, seq),
    FOREIGN KEY (subscription) REFERENCES penstock._subscription(id) ON DELETE CASCADE
);
CREATE INDEX _dead_letter_subscription_seq_idx ON penstock._dead_letter USING btree (subscription, seq) WHERE retry;

create table penstock._dedup (
    queue integer not null,
    id bigint not null,
    at timestamp with time zone not null default clock_timestamp(),
    slot smallint not null default ((pg_sequence_last_value('penstock._dedup_slot'::regclass) % (2)::bigint))::smallint,
    dedup_key text collate "C" not null
) partition by LIST (slot);
CREATE INDEX _dedup_queue_dedup_key_at_idx ON ONLY penstock._dedup USING btree (queue, dedup_key, at);

create table penstock._dedup_0 partition of penstock._dedup FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._dedup_0 replica identity full;

create table penstock._dedup_1 partition of penstock._dedup FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._dedup_1 replica identity full;

create table penstock._function_hash (
    name text collate "C" not null,
    hash text not null,
    PRIMARY KEY (name)
);

create table penstock._functions (
    hash text not null,
    applied_at timestamp with time zone not null default now()
);
alter table penstock._functions replica identity full;

create table penstock._inbox (
    id integer generated always as identity,
    consumer text not null,
    keep interval not null,
    created_at timestamp with time zone not null default now(),
    CHECK (((octet_length(consumer) >= 1) AND (octet_length(consumer) <= 48))),
    UNIQUE (consumer),
    PRIMARY KEY (id)
);

create table penstock._lease (
    lease bigint not null default ((nextval('penstock._lease_n'::regclass) << 20) | ((floor((random() * (524288)::double precision)))::bigint << 1)),
    queue integer not null,
    attempt integer,
    lease_until timestamp with time zone not null,
    id bigint,
    created_at timestamp with time zone,
    priority smallint not null,
    slot smallint not null default ((pg_sequence_last_value('penstock._lease_slot'::regclass) % (2)::bigint))::smallint,
    worker text not null,
    group_key text not null,
    key text collate "C",
    headers jsonb,
    payload bytea,
    failures jsonb,
    done bit(256),
    jobs penstock._claimed[],
    claimed_at timestamp with time zone,
    report jsonb
) partition by LIST (slot);
alter table penstock._lease alter column jobs set storage external;
CREATE INDEX _lease_queue_key_idx ON ONLY penstock._lease USING btree (queue, key) WHERE (key IS NOT NULL);
CREATE INDEX _lease_queue_lease_until_idx ON ONLY penstock._lease USING btree (queue, lease_until);

create table penstock._lease_0 partition of penstock._lease FOR VALUES IN ('0') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
CREATE UNIQUE INDEX _lease_0_lease ON penstock._lease_0 USING btree (lease);
alter table penstock._lease_0 replica identity using index penstock._lease_0_lease;

create table penstock._lease_1 partition of penstock._lease FOR VALUES IN ('1') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
CREATE UNIQUE INDEX _lease_1_lease ON penstock._lease_1 USING btree (lease);
alter table penstock._lease_1 replica identity using index penstock._lease_1_lease;

create table penstock._maintenance (
    id bigint generated always as identity,
    queue integer not null,
    until timestamp with time zone,
    PRIMARY KEY (id),
    TRIGGER DEFERRABLE INITIALLY DEFERRED
);
CREATE CONSTRAINT TRIGGER maintenance AFTER INSERT ON penstock._maintenance DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock._maintain_at_commit();

create table penstock._migration (
    id integer generated by default as identity,
    version_id bigint not null,
    is_applied boolean not null,
    tstamp timestamp without time zone not null default now(),
    PRIMARY KEY (id)
);

create table penstock._outbox (
    name text not null,
    uid text not null,
    segment_bytes bigint not null default 134217728,
    retain_age interval,
    retain_bytes bigint,
    created_at timestamp with time zone not null default now(),
    CHECK ((((octet_length(name) >= 1) AND (octet_length(name) <= 48)) AND ("left"(name, 1) <> '_'::text))),
    PRIMARY KEY (name)
);

create table penstock._pair (
    name text not null,
    retired timestamp with time zone,
    again timestamp with time zone,
    writers text[],
    trouble text,
    PRIMARY KEY (name)
);

create table penstock._parked (
    subscription bigint not null,
    p bigint not null,
    seq bigint not null,
    created_at timestamp with time zone not null,
    slot smallint not null default (pg_sequence_last_value('penstock._parked_slot'::regclass))::smallint,
    parked_key text collate "C" not null,
    id text,
    key text,
    topic text not null,
    headers jsonb,
    payload bytea not null
) partition by LIST (slot);
CREATE INDEX _parked_subscription_parked_key_p_idx ON ONLY penstock._parked USING btree (subscription, parked_key, p);

create table penstock._parked_0 partition of penstock._parked FOR VALUES IN ('0') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock._parked_0 replica identity full;

create table penstock._parked_1 partition of penstock._parked FOR VALUES IN ('1') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock._parked_1 replica identity full;

create table penstock._parked_key (
    subscription bigint not null,
    n bigint not null default nextval('penstock._parked_key_n'::regclass),
    due timestamp with time zone not null,
    head bigint,
    held bigint,
    failed_since timestamp with time zone,
    attempt integer not null,
    slot smallint not null default (pg_sequence_last_value('penstock._parked_key_slot'::regclass))::smallint,
    parked_key text collate "C" not null,
    failures jsonb
) partition by LIST (slot);
CREATE INDEX _parked_key_subscription_due_n_idx ON ONLY penstock._parked_key USING btree (subscription, due, n) WHERE (head IS NOT NULL);
CREATE INDEX _parked_key_subscription_parked_key_n_idx ON ONLY penstock._parked_key USING btree (subscription, parked_key, n);

create table penstock._parked_key_0 partition of penstock._parked_key FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._parked_key_0 replica identity full;

create table penstock._parked_key_1 partition of penstock._parked_key FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._parked_key_1 replica identity full;

create table penstock._queue (
    id integer generated always as identity,
    name text not null,
    lifo boolean not null,
    segment_bytes bigint not null,
    max_attempts integer not null default 25,
    created_at timestamp with time zone not null default now(),
    paused boolean not null default false,
    max_running integer,
    dedup_window interval not null default '01:00:00'::interval,
    keep_done interval,
    keep_done_bytes bigint not null default 1073741824,
    done_since timestamp with time zone[],
    CHECK ((dedup_window > '00:00:00'::interval)),
    CHECK ((max_attempts > 0)),
    CHECK ((max_running > 0)),
    CHECK ((((octet_length(name) >= 1) AND (octet_length(name) <= 48)) AND ("left"(name, 1) <> '_'::text))),
    UNIQUE (name),
    PRIMARY KEY (id)
);

create table penstock._relay_role (
    name name collate "C" not null,
    PRIMARY KEY (name)
);

create table penstock._replay (
    id bigint generated always as identity,
    subscription bigint not null,
    outbox text not null,
    pos bigint not null,
    to_seq bigint not null,
    created_from timestamp with time zone not null,
    created_to timestamp with time zone not null,
    done pg_snapshot not null,
    upto pg_snapshot not null,
    upto_pos bigint not null,
    system bigint not null,
    low bigint not null default 0,
    ahead int8multirange not null default '{}'::int8multirange,
    besides int8multirange not null default '{}'::int8multirange,
    others int8multirange not null default '{}'::int8multirange,
    PRIMARY KEY (id),
    FOREIGN KEY (subscription) REFERENCES penstock._subscription(id) ON DELETE CASCADE
);
CREATE INDEX _replay_subscription_id_idx ON penstock._replay USING btree (subscription, id);

create table penstock._retry (
    subscription bigint not null,
    parked_key text collate "C" not null,
    n bigint not null,
    PRIMARY KEY (subscription, parked_key),
    FOREIGN KEY (subscription) REFERENCES penstock._subscription(id) ON DELETE CASCADE
);

create table penstock._schedule (
    queue integer not null,
    name text not null,
    cron text not null,
    next timestamp with time zone not null,
    priority smallint not null,
    group_key text not null,
    key text,
    dedup_key text,
    headers jsonb,
    payload bytea not null,
    CHECK ((octet_length(dedup_key) <= 256)),
    CHECK ((octet_length(group_key) <= 256)),
    CHECK ((jsonb_typeof(headers) = 'object'::text)),
    CHECK ((octet_length(key) <= 1024)),
    CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128))),
    CHECK ((octet_length(payload) <= 67108864)),
    PRIMARY KEY (queue, name),
    CHECK (((priority >= '-16'::integer) AND (priority <= 15))),
    FOREIGN KEY (queue) REFERENCES penstock._queue(id) ON DELETE CASCADE
);

create table penstock._scheduled (
    id bigint not null,
    queue integer not null,
    attempt integer not null,
    due timestamp with time zone not null,
    created_at timestamp with time zone not null,
    priority smallint not null,
    slot smallint not null default ((pg_sequence_last_value('penstock._scheduled_slot'::regclass) % (2)::bigint))::smallint,
    group_key text not null,
    key text collate "C",
    headers jsonb,
    payload bytea not null,
    failures jsonb
) partition by LIST (slot);
CREATE INDEX _scheduled_queue_due_id_idx ON ONLY penstock._scheduled USING btree (queue, due, id);
CREATE INDEX _scheduled_queue_id_idx ON ONLY penstock._scheduled USING btree (queue, id);
CREATE INDEX _scheduled_queue_key_id_idx ON ONLY penstock._scheduled USING btree (queue, key, id) WHERE ((key IS NOT NULL) AND ((attempt <> 0) OR (due = 'infinity'::timestamp with time zone)));

create table penstock._scheduled_0 partition of penstock._scheduled FOR VALUES IN ('0') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock._scheduled_0 replica identity full;

create table penstock._scheduled_1 partition of penstock._scheduled FOR VALUES IN ('1') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock._scheduled_1 replica identity full;

create table penstock._segment (
    queue integer not null,
    slot smallint not null,
    turn bigint not null,
    writers text[],
    looked timestamp with time zone,
    rest integer,
    leaving boolean not null default false,
    job tid,
    retired timestamp with time zone,
    again timestamp with time zone,
    trouble text,
    PRIMARY KEY (queue, slot),
    FOREIGN KEY (queue) REFERENCES penstock._queue(id) ON DELETE CASCADE
);

create table penstock._skip_map (
    queue integer not null,
    n bigint not null default nextval('penstock._skip_map_n'::regclass),
    base bigint not null,
    seen bigint not null,
    xid xid8 not null,
    turn bigint not null,
    slot smallint not null default (pg_sequence_last_value('penstock._skip_map_slot'::regclass))::smallint,
    priority smallint not null,
    group_key text collate "C" not null,
    lo bigint[] not null,
    hi bigint[] not null,
    pending xid8[] not null,
    slots smallint[] not null
) partition by LIST (slot);
CREATE INDEX _skip_map_queue_group_key_priority_n_idx ON ONLY penstock._skip_map USING btree (queue, group_key, priority, n);

create table penstock._skip_map_0 partition of penstock._skip_map FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._skip_map_0 replica identity full;

create table penstock._skip_map_1 partition of penstock._skip_map FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._skip_map_1 replica identity full;

create table penstock._subscription (
    id bigint generated always as identity,
    outbox text not null,
    name text not null,
    created_at timestamp with time zone not null default now(),
    sink_epoch bigint,
    sink_down timestamp with time zone,
    sink_error text,
    CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128))),
    FOREIGN KEY (outbox) REFERENCES penstock._outbox(name) ON DELETE CASCADE,
    UNIQUE (outbox, name),
    PRIMARY KEY (id),
    CHECK ((octet_length(sink_error) <= 500))
);

create sequence penstock._adopt_n;
create sequence penstock._cursor_n;
create sequence penstock._cursor_slot minvalue 0 maxvalue 1; -- holds 0
create sequence penstock._dedup_slot minvalue 0 maxvalue 3; -- holds 0
create sequence penstock._lease_n;
create sequence penstock._lease_slot minvalue 0 maxvalue 3; -- holds 0
create sequence penstock._parked_key_n;
create sequence penstock._parked_key_slot minvalue 0 maxvalue 1; -- holds 0
create sequence penstock._parked_p increment by 1048576 minvalue 1048576;
create sequence penstock._parked_slot minvalue 0 maxvalue 1; -- holds 0
create sequence penstock._scheduled_slot minvalue 0 maxvalue 3; -- holds 0
create sequence penstock._skip_map_n;
create sequence penstock._skip_map_slot minvalue 0 maxvalue 1; -- holds 0

create view penstock.outbox_internals as
 SELECT o.name AS outbox,
    (pg_sequence_last_value((penstock._q((('_'::text || o.name) || '.slot'::text)))::regclass))::integer AS written_to,
    ARRAY( SELECT pg_total_relation_size((g.oid)::regclass) AS pg_total_relation_size
           FROM penstock._segments(o.name) g(slot, oid)
          ORDER BY g.slot) AS segment_bytes,
    pg_sequence_last_value((penstock._q((('_'::text || o.name) || '.seq'::text)))::regclass) AS last_seq,
    s.name AS subscription,
    h.holder,
    h.epoch,
    h.since AS held_since,
    h.lease_until,
    h.at AS written_at,
    h.settled,
    pg_snapshot_xmin(h.done) AS settled_below_xid,
    pg_snapshot_xmax(h.done) AS none_settled_from_xid,
    ( SELECT count(*) AS count
           FROM pg_snapshot_xip(h.done) pg_snapshot_xip(pg_snapshot_xip)) AS in_flight,
    h.low,
    (h.upto IS NOT NULL) AS paging,
    h.pos,
    h.ahead
   FROM ((penstock._outbox o
     LEFT JOIN penstock._subscription s ON ((s.outbox = o.name)))
     LEFT JOIN LATERAL penstock._head(s.id) h(subscription, epoch, n, at, lease_until, since, low, upto_low, pos, settled, system, slot, holder, done, upto, timeline, ahead) ON (true));
comment on column penstock.outbox_internals.written_to is 'slot of the segment that new messages go to';
comment on column penstock.outbox_internals.segment_bytes is 'size of each segment with indexes and TOAST, by slot';
comment on column penstock.outbox_internals.last_seq is 'last number that a message was given';
comment on column penstock.outbox_internals.holder is 'who had the lease last';
comment on column penstock.outbox_internals.epoch is 'grows when the lease changes hands';
comment on column penstock.outbox_internals.held_since is 'since when the holder has had the lease';
comment on column penstock.outbox_internals.lease_until is 'when the lease ends, unless the holder extends it';
comment on column penstock.outbox_internals.written_at is 'when the cursor was written last';
comment on column penstock.outbox_internals.settled is 'how many messages were settled since the subscription was created';
comment on column penstock.outbox_internals.settled_below_xid is 'messages of transactions below this xid are settled';
comment on column penstock.outbox_internals.none_settled_from_xid is 'messages of transactions from this xid on are not settled; they have a seq above low';
comment on column penstock.outbox_internals.in_flight is 'how many transactions between the two had not ended: their messages are found by xid when they commit';
comment on column penstock.outbox_internals.low is 'messages of transactions from none_settled_from_xid on have a seq above this';
comment on column penstock.outbox_internals.paging is 'a backlog is read page by page';
comment on column penstock.outbox_internals.pos is 'of a backlog, messages up to this seq are settled';
comment on column penstock.outbox_internals.ahead is 'settled messages behind others that are not, by seq';

create view penstock.queue_internals as
 SELECT q.name AS queue,
        CASE
            WHEN q.lifo THEN 'lifo'::text
            ELSE 'fifo'::text
        END AS ordering,
    r.turn,
    r.slot AS written_to,
    ARRAY( SELECT s.slot
           FROM penstock._segment s
          WHERE ((s.queue = q.id) AND (s.retired IS NULL))
          ORDER BY s.turn) AS listed,
    ARRAY( SELECT s.slot
           FROM penstock._segment s
          WHERE ((s.queue = q.id) AND (s.retired IS NOT NULL))
          ORDER BY s.turn) AS retired,
    ARRAY( SELECT pg_total_relation_size((g.oid)::regclass) AS pg_total_relation_size
           FROM penstock._segments(q.name) g(slot, oid)
          ORDER BY g.slot) AS segment_bytes,
    ARRAY( SELECT format('segment %s: %s'::text, s.slot, s.trouble) AS format
           FROM penstock._segment s
          WHERE ((s.queue = q.id) AND (s.trouble IS NOT NULL))) AS trouble,
    f.priorities,
    f.keyed,
    f.watched,
    penstock._register(q.name, 'seq'::text) AS last_seq,
    p.mode AS fast_path,
    p.slot AS fast_path_slot,
    p.at AS fast_path_at,
    penstock._register(q.name, 'next'::text) AS "position",
        CASE
            WHEN q.lifo THEN penstock._register(q.name, 'top'::text)
            ELSE NULL::bigint
        END AS top,
        CASE
            WHEN (penstock._register(q.name, 'maintained'::text) > 0) THEN to_timestamp((((penstock._register(q.name, 'maintained'::text))::numeric / 1000.0))::double precision)
            ELSE NULL::timestamp with time zone
        END AS maintained_at,
    e.since AS nothing_enqueued_since,
    e.bound_waits AS skip_map_waits
   FROM penstock._queue q,
    LATERAL penstock._ring_position(q.name) r(turn, slot),
    LATERAL penstock._queue_flags(q.name) f(priorities, keyed, watched),
    LATERAL penstock._fast_path_mode(q.name) p(at, mode, slot),
    LATERAL penstock._seen_end(q.name) e(since, bound_waits);
comment on column penstock.queue_internals.turn is 'grows whenever another segment is written to, or one leaves the list';
comment on column penstock.queue_internals.written_to is 'slot of the segment that new jobs go to';
comment on column penstock.queue_internals.listed is 'slots of the segments that jobs are taken from, in order';
comment on column penstock.queue_internals.retired is 'slots of those that are off the list and wait for their TRUNCATE; all others are empty';
comment on column penstock.queue_internals.segment_bytes is 'size of each segment with indexes and TOAST, by slot';
comment on column penstock.queue_internals.trouble is 'why the maintenance of a segment failed last';
comment on column penstock.queue_internals.priorities is 'jobs of these priorities may be there';
comment on column penstock.queue_internals.keyed is 'jobs with keys may be there: claims look for those that must wait';
comment on column penstock.queue_internals.watched is 'the row of the queue says that it is paused, or limits how many jobs run';
comment on column penstock.queue_internals.last_seq is 'last number that a job was given';
comment on column penstock.queue_internals.fast_path is 'how jobs are found: at the position, which each call moves; as the first free one from there; without moving it, while few jobs wait; or by the skip map';
comment on column penstock.queue_internals.fast_path_slot is 'in which segment the position is';
comment on column penstock.queue_internals.fast_path_at is 'until 25 ms after this the fast path holds; a call writes it anew then';
comment on column penstock.queue_internals."position" is 'the last number that a call has drawn';
comment on column penstock.queue_internals.top is 'of a LIFO queue: how far the sequence had come when nothing was above the position';
comment on column penstock.queue_internals.maintained_at is 'when the maintenance of the queue ended last; it is due 250 ms later';
comment on column penstock.queue_internals.nothing_enqueued_since is 'since when the sequence has not moved, as maintenance saw it';
comment on column penstock.queue_internals.skip_map_waits is 'the next maintenance brings the bound of a skip map up to date';

-- _refuse_headers raises what is wrong with the headers of a message or a job. Escapes only make JSON longer than what it stands
-- for, so short text needs no adding up.
CREATE OR REPLACE FUNCTION penstock._refuse_headers(headers jsonb)
 RETURNS void
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    bytes bigint;
begin
    if jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers are a JSON %, expected an object', jsonb_typeof(headers)
        using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
    elsif octet_length(headers::text) > 65536 then
        bytes := (select sum(octet_length(h.key) + coalesce(octet_length(h.value), 0)) from jsonb_each_text(headers) h);
        if bytes > 65536 then
            raise exception 'the headers have % bytes, the limit is 65536', bytes
            using errcode = '23514', hint = 'move what is large into the payload';
        end if;
    end if;
end $function$;
-- everybody may execute it

-- _readable is a statement that fails with 22P05 where a text of the database's encoding means nothing in UTF8, in which all of
-- it is read: better here than for whoever reads. In most databases there is none.
CREATE OR REPLACE FUNCTION penstock._readable(columns text)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select case when getdatabaseencoding() in ('UTF8', 'SQL_ASCII') then ''
                else format('perform pg_catalog.convert_to(pg_catalog.concat(%s), ''UTF8'');', columns) end
$function$;

-- _validate_message is the trigger of an outbox, so that limits hold for a plain INSERT: a check would be parsed anew in every
-- statement. It runs with the rights and on the search_path of the role that inserts, because another path would cost as much
-- again as the rest: so all in it is qualified.
CREATE OR REPLACE FUNCTION penstock._validate_message()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
    
    if new.headers is null and new.id is null
       and (new.key is null or pg_catalog.octet_length(new.key) operator(pg_catalog.<=) 1024)
       and pg_catalog.octet_length(new.topic) operator(pg_catalog.<=) 1024
       and pg_catalog.octet_length(new.payload) operator(pg_catalog.<=) 67108864 then
        return new;
    end if;
    if new.payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the message has none';
    elsif pg_catalog.octet_length(new.payload) operator(pg_catalog.>) 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', pg_catalog.octet_length(new.payload)
        using errcode = '23514', hint = 'store it elsewhere and publish a reference';
    elsif new.topic is null then
        raise exception 'the topic is null' using errcode = '22023', hint = $h$leave the column out, or use '' if the message has none$h$;
    elsif pg_catalog.octet_length(new.topic) operator(pg_catalog.>) 1024 then
        raise exception 'the topic has % bytes, the limit is 1024', pg_catalog.octet_length(new.topic) using errcode = '23514', hint = 'use a shorter one';
    elsif pg_catalog.octet_length(new.key) operator(pg_catalog.>) 1024 then
        raise exception 'the key has % bytes, the limit is 1024', pg_catalog.octet_length(new.key) using errcode = '23514', hint = 'use a hash of it';
    elsif pg_catalog.octet_length(new.id) operator(pg_catalog.>) 256 then
        raise exception 'the id has % bytes, the limit is 256', pg_catalog.octet_length(new.id) using errcode = '23514', hint = 'use a hash of it';
    elsif pg_catalog.jsonb_typeof(new.headers) operator(pg_catalog.<>) 'object'
          or pg_catalog.octet_length(new.headers::pg_catalog.text) operator(pg_catalog.>) 65536 then
        perform penstock._refuse_headers(new.headers);
    end if;
    return new;
end $function$;
-- everybody may execute it

-- _validate_by makes the trigger of a table, and so of its segments. Triggers fire in the order of their names, so this one comes
-- after those that users add, and always: also for what a subscription of logical replication writes.
CREATE OR REPLACE FUNCTION penstock._validate_by(name text, call text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    execute format('create trigger zz_validate before insert or update on %s for each row execute function %s', _q(name), call);
    execute format('alter table %s enable always trigger zz_validate', _q(name));
end $function$;

-- Writes one message within the caller's transaction; a plain INSERT into the outbox does the same and is faster. Errors: 42P01
-- for an unknown outbox, 23514 for a field over its limit, 22023 for a payload that is null, 22021 for text with a NUL or invalid
-- UTF-8.
CREATE OR REPLACE FUNCTION penstock.publish_bytes(outbox text, payload bytea, key text DEFAULT NULL::text, topic text DEFAULT ''::text, headers jsonb DEFAULT NULL::jsonb, id text DEFAULT NULL::text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if to_regclass(quote_ident(current_schema()) || '.' || quote_ident('_' || outbox || '.slot')) is null then -- a queue has none
        raise exception 'there is no outbox %', coalesce(quote_literal(outbox), 'null')
        using errcode = '42P01', hint = 'create it with: penstock outbox create ' || coalesce(quote_literal(outbox), 'NAME');
    end if;
    execute format('insert into %I.%I (id, key, topic, headers, payload) values ($1, $2, $3, $4, $5)', current_schema(), outbox)
    using id, key, coalesce(topic, ''), headers, payload;
end $function$;

-- Writes one message of JSON, as UTF-8, within the caller's transaction; else as publish_bytes.
CREATE OR REPLACE FUNCTION penstock.publish(outbox text, payload jsonb, key text DEFAULT NULL::text, topic text DEFAULT ''::text, headers jsonb DEFAULT NULL::jsonb, id text DEFAULT NULL::text)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select publish_bytes(outbox, convert_to(payload::text, 'UTF8'), key, topic, headers, id)
$function$;

-- Writes one message of text, as UTF-8, within the caller's transaction; else as publish_bytes.
CREATE OR REPLACE FUNCTION penstock.publish(outbox text, payload text, key text DEFAULT NULL::text, topic text DEFAULT ''::text, headers jsonb DEFAULT NULL::jsonb, id text DEFAULT NULL::text)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select publish_bytes(outbox, convert_to(payload, 'UTF8'), key, topic, headers, id)
$function$;

-- _q qualifies and quotes the name of a relation of this schema. Unqualified, an outbox called pg_class would be looked up in
-- pg_catalog.
CREATE OR REPLACE FUNCTION penstock._q(name text)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
RETURN format('%I.%I'::text, "current_schema"(), name);
-- everybody may execute it

-- _read_committed refuses to go on where a statement would not see what committed before it: its callers take a lock and then
-- look.
CREATE OR REPLACE FUNCTION penstock._read_committed()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'this needs the isolation level read committed' using errcode = '25001';
    end if;
end $function$;
-- everybody may execute it

-- Makes an outbox: a ring of segments behind one table. Errors: 42P07 (duplicate_table) if it exists, 23514 for a name that
-- cannot be used.
CREATE OR REPLACE FUNCTION penstock.create_outbox(name text, segments integer DEFAULT 8, segment_bytes bigint DEFAULT 134217728)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    seq_name  text := _q(format('_%s.seq', name));
    slot_name text := _q(format('_%s.slot', name));
    role      name;
begin
    if segments not between 2 and 1000 then
        raise exception 'segments is %, expected 2 to 1000', segments using errcode = '22023';
    end if;
    if segment_bytes < 65536 then
        raise exception 'segment_bytes is %, expected at least 65536', segment_bytes using errcode = '22023';
    end if;
    if exists (select from _outbox o where o.name = create_outbox.name) then
        raise exception 'the outbox % exists already', quote_literal(name) using errcode = '42P07';
    end if;
    insert into _outbox (name, uid, segment_bytes)
    values (name, substr(replace(gen_random_uuid()::text, '-', ''), 1, 12), segment_bytes);

    execute format('create sequence %s', seq_name);
    -- A sequence used as a register: setval moves it, pg_sequence_last_value
    -- reads it, without MVCC and without a dead row.
    execute format('create sequence %s minvalue 0', slot_name);
    perform setval(slot_name, 0);

    -- Defaults are evaluated in column order, and xid must come before seq: the
    -- bound in _cursor.low depends on it. created_at is part of the message's id.
    execute format($ddl$
        create table %1$s (
            xid        xid8        not null default pg_current_xact_id(),
            seq        bigint      not null default nextval(%2$L),
            created_at timestamptz not null default clock_timestamp(),
            slot       smallint    not null default pg_sequence_last_value(%3$L)::smallint,
            id         text,
            key        text,
            topic      text        not null default '',
            headers    jsonb,
            payload    bytea       not null
        ) partition by list (slot)$ddl$,
        _q(name), seq_name, slot_name);
    perform _validate_by(name, '_validate_message()');
    execute format('create index on %s (seq)', _q(name));
    execute format('create index on %s (xid, seq)', _q(name));
    for slot in 0 .. segments - 1 loop
        execute format('create table %s partition of %s for values in (%s)
                        with (autovacuum_enabled = false, toast.autovacuum_enabled = false)',
                       _q(format('_%s.%s', name, slot)), _q(name), slot);
        execute format('alter table %s replica identity full', _q(format('_%s.%s', name, slot))); -- for whoever mends a message by hand
    end loop;
    for role in select r.name from _relay_role r join pg_roles p on p.rolname = r.name loop
        perform _grant_relay_on(name, role);
    end loop;
    perform _own(name);
end $function$;

-- _own gives an outbox that another role has made to the owner of the schema's other tables, as whom _rotate and _reclaim run.
CREATE OR REPLACE FUNCTION penstock._own(outbox text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    owner name := (select pg_get_userbyid(relowner) from pg_class where oid = '_outbox'::regclass);
    slot  int;
begin
    if owner = current_user then
        return;
    end if;
    execute format('alter table %s owner to %I', _q(outbox), owner);
    for slot in select s.slot from _segments(outbox) s loop
        execute format('alter table %s owner to %I', _q(format('_%s.%s', outbox, slot)), owner);
    end loop;
    execute format('alter sequence %s owner to %I', _q('_' || outbox || '.seq'), owner);
    execute format('alter sequence %s owner to %I', _q('_' || outbox || '.slot'), owner);
end $function$;

-- Removes an outbox with its messages, subscriptions and dead letters. Error: 42P01 (undefined_table) if there is none.
CREATE OR REPLACE FUNCTION penstock.drop_outbox(name text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    delete from _outbox o where o.name = drop_outbox.name;
    if not found then
        raise exception 'there is no outbox %', quote_literal(name) using errcode = '42P01';
    end if;
    execute format('drop table %s', _q(name));
    execute format('drop sequence %s, %s', _q('_' || name || '.seq'), _q('_' || name || '.slot'));
end $function$;

-- Removes a subscription with its cursor and dead letters; what only it had not settled can then be reclaimed. Error: 42704
-- (undefined_object).
CREATE OR REPLACE FUNCTION penstock.drop_subscription(outbox text, name text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    delete from _subscription s where s.outbox = drop_subscription.outbox and s.name = drop_subscription.name;
    if not found then
        raise exception 'the outbox % has no subscription %', quote_literal(outbox), quote_literal(name) using errcode = '42704';
    end if;
end $function$;

-- Says how long, or how many bytes of, what every subscription has settled stays in an outbox; null keeps nothing. Errors: 42P01,
-- 22023.
CREATE OR REPLACE FUNCTION penstock.set_retention(outbox text, age interval, bytes bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if age > interval '1000 years' or age < interval '0' then
        raise exception 'the age is %, expected up to 1000 years', age using errcode = '22023', hint = 'null keeps nothing for its age';
    elsif bytes < 0 then
        raise exception 'the bytes are %, expected 0 or more', bytes using errcode = '22023', hint = 'null keeps nothing for its size';
    end if;
    update _outbox o set retain_age = age, retain_bytes = bytes where o.name = outbox;
    if not found then
        raise exception 'there is no outbox %', quote_literal(outbox) using errcode = '42P01';
    end if;
end $function$;

-- Lets a role publish to one outbox and do nothing else: it can insert the columns that belong to it, but neither read nor choose
-- xid or seq.
CREATE OR REPLACE FUNCTION penstock.grant_producer(outbox text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant insert (id, key, topic, headers, payload) on table %s to %I', _q(outbox), role);
    execute format('grant usage on sequence %s to %I', _q('_' || outbox || '.seq'), role);
    execute format('grant select on sequence %s to %I', _q('_' || outbox || '.slot'), role);
    execute format('grant execute on function publish_bytes(text, bytea, text, text, jsonb, text), publish(text, text, text, text, jsonb, text),
                    publish(text, jsonb, text, text, jsonb, text) to %I', role);
end $function$;

-- Lets a role run subscriptions of every outbox, now and later: read messages, move cursors, reclaim space. It can neither
-- publish nor change a message.
CREATE OR REPLACE FUNCTION penstock.grant_relay(role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    outbox text;
begin
    insert into _relay_role (name) values (role) on conflict do nothing;
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant select on table _outbox, _subscription, _cursor, _dead_letter, _replay, _retry, _parked, _parked_key, _migration to %I', role);
    execute format('grant insert on table _subscription, _cursor, _dead_letter, _replay, _retry, _parked, _parked_key to %I', role);
    execute format('grant update, delete on table _dead_letter, _replay, _retry to %I', role);
    execute format('grant usage on sequence _cursor_n, _parked_p, _parked_key_n to %I', role);
    execute format('grant select on sequence _cursor_slot, _parked_slot, _parked_key_slot, _parked_key_n to %I', role);
    execute format('grant execute on function _rotate(text, boolean), _reclaim(text, integer), _behind(text, integer), _reclaim_cursor(), _reclaim_parked_keys(bigint), _reclaim_parked(bigint), _head(bigint), _segments(text), _report_sink(bigint, bigint, timestamptz, text) to %I', role);
    execute format('grant execute on function _write_cursor(bigint, bigint, text, bigint, pg_snapshot, bigint, pg_snapshot, bigint, bigint, bigint, bigint, timestamptz, bigint, integer, int8multirange) to %I', role);
    for outbox in select o.name from _outbox o loop
        perform _grant_relay_on(outbox, role);
    end loop;
end $function$;

-- _grant_relay_on grants what grant_relay does of one outbox.
CREATE OR REPLACE FUNCTION penstock._grant_relay_on(outbox text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    execute format('grant select on table %s to %I', _q(outbox), role);
    execute format('grant select on sequence %s, %s to %I', _q('_' || outbox || '.seq'), _q('_' || outbox || '.slot'), role);
end $function$;

-- _segments are the partitions of an outbox or a queue, by slot.
CREATE OR REPLACE FUNCTION penstock._segments(outbox text)
 RETURNS TABLE(slot integer, oid oid)
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select substring(c.relname from $re$\.([0-9]+)\Z$re$)::int, c.oid
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = _q(outbox)::regclass
$function$;

-- _rotate moves the segment pointer to an empty segment and returns its slot, null if it left the pointer alone: the current
-- segment is not full (unless forced), no other is empty, or another process is at it. The ring does not grow. A writer that
-- already holds its lock on the outbox does not notice a partition that was attached since, and would fail.
CREATE OR REPLACE FUNCTION penstock._rotate(outbox text, force boolean)
 RETURNS integer
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    slot_name regclass := _q('_' || outbox || '.slot')::regclass;
    current   int;
    target    int;
begin
    if not pg_try_advisory_xact_lock('_outbox'::regclass::oid::int, hashtext(outbox)) then
        return null;
    end if;
    current := pg_sequence_last_value(slot_name);
    if not force and pg_table_size(_q(format('_%s.%s', outbox, current))) <
                     (select segment_bytes from _outbox o where o.name = outbox) then
        return null;
    end if;
    select s.slot into target from _segments(outbox) s
     where pg_relation_size(s.oid) = 0 and s.slot <> current
     order by (s.slot < current), s.slot limit 1; -- the next one around
    if target is not null then
        perform setval(slot_name, target);
    end if;
    return target;
end $function$;

-- _reclaim truncates one segment if every subscription has settled all of it and no open transaction has written to it. It
-- returns whether it did. The lock shows that no writer is open; rows of one that committed just before are seen by the probes,
-- whose snapshots are taken under the lock. A writer that read the pointer before it moved may still write here afterwards:
-- readers look into every segment, and the next reclaim finds it.
CREATE OR REPLACE FUNCTION penstock._reclaim(outbox text, slot integer)
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
 SET lock_timeout TO '20ms'
AS $function$
declare
    segment text := _q(format('_%s.%s', outbox, slot));
begin
    perform _read_committed();
    -- One process at a time: two that have looked into the segment would each keep
    -- the other from locking it.
    if not pg_try_advisory_xact_lock('_outbox'::regclass::oid::int, hashtext(outbox))
       or slot = pg_sequence_last_value(_q('_' || outbox || '.slot')::regclass)
       or _needed(outbox, segment::regclass) or _is_dumped(segment) then -- do not lock in vain
        return false;
    end if;
    execute format('lock table %s in access exclusive mode', segment);
    if _needed(outbox, segment::regclass) then
        return false;
    end if;
    execute format('truncate table %s', segment);
    return true;
exception when lock_not_available then
    return false;
end $function$;

-- _unsettled_in says whether the segment holds a row that the subscription's durable cursor does not cover. Two index probes:
-- rows of transactions that were in flight (by xid), and rows above the bound (by seq; the bound says that no younger transaction
-- has a seq below it).
CREATE OR REPLACE FUNCTION penstock._unsettled_in(segment regclass, subscription bigint)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$
declare
    c     _cursor;
    upto  pg_snapshot;
    pos   bigint;
    bound bigint;
    found boolean;
begin
    select * into c from _head(subscription);
    if c.subscription is null or c.system <> (select system_identifier from pg_control_system()) then
        return true;
    end if;
    upto  := coalesce(c.upto, c.done);
    pos   := coalesce(c.pos, 9223372036854775807);
    bound := least(pos, coalesce(c.upto_low, c.low));
    execute format('select exists (select from %1$s e where e.xid = any ($1))
                        or exists (select from %1$s e where e.seq > $2
                                      and not pg_visible_in_snapshot(e.xid, $3)
                                      and not (pg_visible_in_snapshot(e.xid, $4) and e.seq <= $5))', segment)
       into found
      using array(select pg_snapshot_xip(upto)), bound, c.done, upto, pos;
    return found;
end $function$;

-- Without a subscription nobody has settled anything.
CREATE OR REPLACE FUNCTION penstock._unsettled_by_any(outbox text, segment regclass)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
RETURN (SELECT COALESCE(bool_or(penstock._unsettled_in(_unsettled_by_any.segment, s.id)), true) AS "coalesce" FROM penstock._subscription s WHERE (s.outbox = _unsettled_by_any.outbox));

-- _retained says whether a segment's settled messages are kept for a replay: because of the outbox's retention, or because one is
-- under way. By size the oldest segment goes first: one that has an older row beside it stays.
CREATE OR REPLACE FUNCTION penstock._retained(outbox text, segment regclass)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$
declare
    o      _outbox := (select o from _outbox o where o.name = outbox);
    first  bigint;
    last   bigint;
    newest timestamptz;
    older  boolean;
begin
    if o.retain_age is null and o.retain_bytes is null and not exists (select from _replay r where r.outbox = _retained.outbox) then
        return false;
    end if;
    execute format('select seq from %s order by seq limit 1', segment) into first;
    execute format('select seq, created_at from %s order by seq desc limit 1', segment) into last, newest;
    if first is null then
        return false;
    end if;
    if exists (select from _replay r where r.outbox = _retained.outbox and r.pos < last and r.to_seq >= first) then
        return true;
    end if;
    execute format('select exists (select from %s e where e.seq < $1)', _q(outbox)) into older using first;
    return (o.retain_age is not null or o.retain_bytes is not null)
       and (o.retain_age is null or newest > clock_timestamp() - o.retain_age)
       and (o.retain_bytes is null or older or o.retain_bytes >= (select sum(pg_total_relation_size(s.oid)) from _segments(outbox) s));
end $function$;

-- _needed says whether a segment holds what a subscription has not settled, or what is retained.
CREATE OR REPLACE FUNCTION penstock._needed(outbox text, segment regclass)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
RETURN (penstock._unsettled_by_any(outbox, segment) OR penstock._retained(outbox, segment));

-- _behind says whether a segment cannot be truncated yet.
CREATE OR REPLACE FUNCTION penstock._behind(outbox text, slot integer)
 RETURNS boolean
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
RETURN penstock._needed(outbox, (penstock._q(format('_%s.%s'::text, outbox, slot)))::regclass);

-- _head is the cursor and lease of a subscription: a backward index probe. Volatile, for a snapshot that is taken under its
-- locks: with the caller's, it would find nothing at all if it had waited for _reclaim_cursor, because TRUNCATE is not MVCC and
-- the copy of the head not visible yet.
CREATE OR REPLACE FUNCTION penstock._head(subscription bigint)
 RETURNS SETOF penstock._cursor
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select * from _cursor c where c.subscription = _head.subscription
     order by epoch desc, n desc limit 1
$function$;

-- _write_cursor appends to the cursor log, which moves the cursor and extends the lease; a lease of 0 gives it back: it has ended
-- by any clock. It returns the new n; null, and nothing is written, if the subscription was dropped or the head is not expected
-- any more: another holder has the lease, or this one has gone on without a write that a lost connection left under way on the
-- server. Without expected it is a takeover, which has looked at the head under its lock. A lease changes hands under the
-- exclusive form of the lock. Without the shared form here a holder whose lease has expired could write between the moment when
-- the next one reads the cursor and the moment when its epoch is visible: it would be told that its messages are settled, and
-- they would be sent again. The insert must be a statement after the lock, for a snapshot taken under it.
CREATE OR REPLACE FUNCTION penstock._write_cursor(subscription bigint, epoch bigint, holder text, lease_us bigint, done pg_snapshot, low bigint, upto pg_snapshot, upto_low bigint, pos bigint, settled bigint, system bigint, since timestamp with time zone, expected bigint, timeline integer, ahead int8multirange)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    written bigint;
begin
    perform _read_committed();
    perform pg_advisory_xact_lock_shared(1885695596, subscription::int); -- leaseLock in outbox_lease.go
    insert into _cursor (subscription, epoch, holder, lease_until, done, low, upto, upto_low, pos, settled, system, since, timeline, ahead)
    select $1, $2, $3, case $4 when 0 then timestamptz 'epoch' else clock_timestamp() + $4 * interval '1 microsecond' end, $5, $6, $7, $8, $9, $10, $11, $12, $14, $15
     where exists (select from _subscription s where s.id = $1)
       and (expected is null or (select h.n from _head($1) h) = expected)
    returning n into written;
    return written;
end $function$;

-- _report_sink notes how a subscription's sink is, when that changes: a relay may change nothing else of it. False if the lease
-- has been lost.
CREATE OR REPLACE FUNCTION penstock._report_sink(subscription bigint, epoch bigint, down timestamp with time zone, error text)
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    update _subscription s set sink_epoch = $2, sink_down = down, sink_error = error
     where s.id = $1 and (select h.epoch from _head($1) h) = $2;
    return found;
end $function$;

-- _turn_ring keeps a ring of two segments small: once the current one has full_bytes it moves the pointer to the other one,
-- carries over what is still true and truncates. carry is an INSERT in which %1$s is the segment that is emptied and %2$s the
-- number of the other one. rest tells the bytes that it would copy: the segment stays while these are more than 8 MiB and half of
-- what has come since, so that copying costs less than writing did.
CREATE OR REPLACE FUNCTION penstock._turn_ring(ring text, full_bytes bigint, carry text, rest text DEFAULT 'select 0'::text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET lock_timeout TO '20ms'
AS $function$
declare
    current int;
    sealed  regclass;
    other   regclass;
    bytes   bigint;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock(_q(ring)::regclass::oid::int, 0) then
        return false;
    end if;
    current := pg_sequence_last_value(_q(ring || '_slot')::regclass);
    sealed := _q(format('%s_%s', ring, 1 - current));
    other := _q(format('%s_%s', ring, current));
    if pg_relation_size(sealed) = 0 then
        if pg_table_size(other) < full_bytes or pg_relation_size(other) = 0 then
            return false;
        end if;
        current := 1 - current;
        perform setval(_q(ring || '_slot'), current);
        select other, sealed into sealed, other;
    end if;
    execute format(rest, sealed) into bytes;
    if bytes > greatest(8388608, pg_table_size(other) / 2) then
        return false;
    end if;
    perform _step_back_for_dumps(sealed);
    execute format('lock table %s in access exclusive mode', sealed);
    perform _step_back_for_dumps(sealed);
    execute format(carry, sealed, current);
    execute format('truncate table %s', sealed);
    perform _step_back_for_dumps(sealed);
    return true;
exception when lock_not_available then
    return false;
end $function$;

-- _reclaim_cursor keeps the cursor log small. A copy keeps its (epoch, n), so a head that was written meanwhile stays one.
CREATE OR REPLACE FUNCTION penstock._reclaim_cursor()
 RETURNS boolean
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select _turn_ring('_cursor', 4194304, $sql$
        insert into _cursor (subscription, epoch, n, at, lease_until, since, low, upto_low, pos, settled, system, timeline, holder, done, upto, ahead, slot)
        select h.subscription, h.epoch, h.n, h.at, h.lease_until, h.since, h.low, h.upto_low, h.pos, h.settled, h.system, h.timeline, h.holder, h.done, h.upto, h.ahead, %2$s
          from _subscription s, lateral _head(s.id) h
         where h.slot = 1 - %2$s$sql$)
$function$;

-- _reclaim_parked_keys keeps the ring of states small: those that are still true are carried over.
CREATE OR REPLACE FUNCTION penstock._reclaim_parked_keys(full_bytes bigint)
 RETURNS boolean
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$
    select _turn_ring('_parked_key', full_bytes, $sql$
        insert into _parked_key (subscription, n, due, head, held, failed_since, attempt, parked_key, failures, slot)
        select l.subscription, l.n, l.due, l.head, l.held, l.failed_since, l.attempt, l.parked_key, l.failures, %2$s
          from %1$s l
         where l.head is not null
           and not exists (select from _parked_key x where x.subscription = l.subscription and x.parked_key = l.parked_key and x.n > l.n)
           and exists (select from _subscription s where s.id = l.subscription)$sql$)
$function$;

-- _reclaim_parked is the same for the messages.
CREATE OR REPLACE FUNCTION penstock._reclaim_parked(full_bytes bigint)
 RETURNS boolean
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
    select _turn_ring('_parked', full_bytes, $sql$
        insert into _parked (subscription, p, seq, created_at, parked_key, id, key, topic, headers, payload, slot)
        select m.subscription, m.p, m.seq, m.created_at, m.parked_key, m.id, m.key, m.topic, m.headers, m.payload, %2$s $sql$ || alive,
        'select coalesce(sum(octet_length(m.payload) + coalesce(pg_column_size(m.headers), 0) + 200), 0) ' || alive)
      from (select $sql$
          from %1$s m
         where exists (select from _subscription s where s.id = m.subscription)
           and m.p >= (select x.head from _parked_key x where x.subscription = m.subscription and x.parked_key = m.parked_key
                        order by x.subscription desc, x.parked_key desc, x.n desc limit 1)$sql$) a(alive)
$function$;

-- _adopt_fence lets a settling transaction pass while nobody of a later epoch has the lease, and keeps it from changing hands
-- until that transaction ends. SQLSTATE PS001 otherwise.
CREATE OR REPLACE FUNCTION penstock._adopt_fence(of_subscription bigint, of_epoch bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
 SET jit TO 'off'
AS $function$
declare
    latest bigint;
begin
    perform pg_advisory_xact_lock_shared(1885695585, of_subscription::int); -- "pena"
    select l.epoch into latest from _adopt_log l where l.subscription = of_subscription
     order by l.subscription desc, l.epoch desc, l.n desc limit 1;
    if latest is distinct from of_epoch then
        raise exception 'the lease is held by another relay' using errcode = 'PS001';
    end if;
end $function$;

-- _adopt_lock is for whoever changes the state of a subscription from outside: no settling transaction is under way while it is
-- held.
CREATE OR REPLACE FUNCTION penstock._adopt_lock(of_subscription bigint)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
RETURN pg_advisory_xact_lock(1885695585, (of_subscription)::integer);

-- _adopt_release makes the first parked row of each parked key due, if nothing holds it.
CREATE OR REPLACE FUNCTION penstock._adopt_release(of_subscription bigint, parked_keys text[])
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_sort TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
    update _adopt_row r set due = clock_timestamp()
      from unnest(parked_keys) l (parked_key)
     cross join lateral (
            select f.row_id from _adopt_row f
             where f.subscription = of_subscription and f.parked_key = l.parked_key and f.died_at is null and not f.out_of_order
             order by f.subscription, f.parked_key, f.seq limit 1) first
     where r.subscription = of_subscription and r.row_id = first.row_id and r.due is null
       and not exists (select from _adopt_row h where h.subscription = of_subscription and h.parked_key = l.parked_key and h.held)
$function$;

-- Lets a role, which may use the adopted tables already, run subscriptions over them.
CREATE OR REPLACE FUNCTION penstock.grant_adopt(role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant select on table _migration to %I', role);
    execute format('grant select, insert, update, delete on table _adopt_subscription, _adopt_log, _adopt_row to %I', role);
    execute format('grant usage on sequence _adopt_n to %I', role);
    execute format('grant execute on function _adopt_fence(bigint, bigint), _adopt_lock(bigint), _adopt_release(bigint, text[]) to %I', role);
end $function$;

-- Makes a queue: a ring of segments behind one table, registers, and functions. Errors: 42P07 (duplicate_table) if the name is
-- taken, 23514 for a name that cannot be used, 22023 for an ordering other than fifo and lifo.
CREATE OR REPLACE FUNCTION penstock.create_queue(name text, ordering text DEFAULT 'fifo'::text, segments integer DEFAULT 3, segment_bytes bigint DEFAULT 67108864)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET check_function_bodies TO 'off'
AS $function$
declare
    seq_name   text := _q(format('_%s.seq', name));
    ring_name  text := _q(format('_%s.ring', name));
    flags_name text := _q(format('_%s.flags', name));
    register   text;
    segment    text;
    made       int;
begin
    if ordering is null or ordering not in ('fifo', 'lifo') then
        raise exception 'the ordering is %, expected fifo or lifo', coalesce(quote_literal(ordering), 'null') using errcode = '22023';
    end if;
    if segments not between 2 and 1000 then
        raise exception 'segments is %, expected 2 to 1000', segments using errcode = '22023';
    end if;
    if segment_bytes < 65536 then
        raise exception 'segment_bytes is %, expected at least 65536', segment_bytes using errcode = '22023';
    end if;
    if exists (select from _queue q where q.name = create_queue.name) then
        raise exception 'the queue % exists already', quote_literal(name) using errcode = '42P07';
    end if;
    perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0); -- migrate, which makes all functions anew, waits
    insert into _queue (name, lifo, segment_bytes) values (name, ordering = 'lifo', segment_bytes) returning id into made;
    insert into _segment (queue, slot, turn) values (made, 0, 0);
    execute format('create sequence %s', seq_name);
    -- Sequences used as registers, see create_outbox. fast_path, next and, in LIFO order, top: where a job is to be found
    -- without a scan, see {scan}. maintained: when that was done last, in ms. seen: see _idle_for.
    foreach register in array '{ring,flags,seen,fast_path,next,maintained}' || case ordering when 'lifo' then '{top}' else '{}'::text[] end loop
        register := _q(format('_%s.%s', name, register));
        execute format('create sequence %s minvalue 0', register);
        perform setval(register, 0);
    end loop;
    perform setval(flags_name, 65536); -- plain, see _fill
    if ordering = 'lifo' then
        execute format('alter sequence %s increment -1 minvalue -9223372036854775807', _q(format('_%s.next', name)));
    end if;
    execute format($ddl$
        create table %1$s (
            xid        xid8        not null default pg_current_xact_id(), -- must come before seq, see _skip_map
            seq        bigint      not null default nextval(%2$L),
            created_at timestamptz not null default clock_timestamp(),
            id         bigint,                                            -- null: seq
            attempt    integer     not null default 0,                    -- how many it has had
            priority   smallint    not null default 0,
            slot       smallint    not null default (pg_sequence_last_value(%3$L) %% 1024)::smallint,
            group_key  text        collate "C" not null default '',
            key        text        collate "C",
            headers    jsonb,
            payload    bytea       not null,
            failures   jsonb
        ) partition by list (slot)$ddl$,
        _q(name), seq_name, ring_name);
    perform _validate_by(name, format('_validate_job(%L)', flags_name));
    for slot in 0 .. segments - 1 loop
        segment := _q(format('_%s.%s', name, slot));
        execute format('create table %s partition of %s for values in (%s)
                        with (autovacuum_enabled = false, toast.autovacuum_enabled = false)', segment, _q(name), slot);
        execute format('create unique index on %1$s (group_key, priority, seq); create index on %1$s (xid);
                        create index on %1$s (key, id, seq) where key is not null; create index on %1$s (id) where id is not null', segment); -- by id cancel finds jobs
        execute (select format('alter table %s replica identity using index %I', segment, c.relname) -- see the tables' file, at its end
                   from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = segment::regclass and i.indisunique);
    end loop;
    perform _define(name);
    perform _keep_hashes(_functions_of_queue(name));
end $function$;

-- _queue_function is the name of a function of a queue. Error: 42P01.
CREATE OR REPLACE FUNCTION penstock._queue_function(queue text, name text)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
AS $function$
declare
    own constant text := 'penstock.' operator(pg_catalog.||) pg_catalog.quote_ident(pg_catalog.concat('_', queue, '.', name));
begin
    if queue is null or pg_catalog.starts_with(queue, '_') or pg_catalog.to_regproc(own) is null then
        raise exception 'there is no queue %', coalesce(pg_catalog.quote_literal(queue), 'null')
        using errcode = '42P01', hint = pg_catalog.concat('create it with: penstock queue create ', coalesce(pg_catalog.quote_literal(queue), 'NAME'));
    end if;
    return own;
end $function$;
-- everybody may execute it

-- Writes one job and returns its id; of a duplicate (dedup_key), the first one's. Errors: 42P01 for an unknown queue, 23514 for
-- what is over a limit, 22023 for a payload that is null.
CREATE OR REPLACE FUNCTION penstock.enqueue_bytes(queue text, payload bytea, key text DEFAULT NULL::text, group_key text DEFAULT ''::text, priority integer DEFAULT 0, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, dedup_key text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
declare
    made bigint;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'enqueue'), '($1, $2, $3, $4, $5, $6, $7)')
       into made using payload, key, group_key, priority, not_before, dedup_key, headers;
    return made;
end $function$;
-- everybody may execute it

-- Writes a job for each payload, in their order, and returns the ids. An array that is null stands for the default.
CREATE OR REPLACE FUNCTION penstock.enqueue_many_bytes(queue text, payloads bytea[], keys text[] DEFAULT NULL::text[], group_keys text[] DEFAULT NULL::text[], priorities integer[] DEFAULT NULL::integer[], not_befores timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], dedup_keys text[] DEFAULT NULL::text[], headers jsonb[] DEFAULT NULL::jsonb[])
 RETURNS SETOF bigint
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select ', penstock._queue_function(queue, 'enqueue_many'), '($1, $2, $3, $4, $5, $6, $7)')
                   using payloads, keys, group_keys, priorities, not_befores, dedup_keys, headers;
end $function$;
-- everybody may execute it

-- Writes one job whose payload is JSON, as UTF-8, and returns its id; else as enqueue_bytes.
CREATE OR REPLACE FUNCTION penstock.enqueue(queue text, payload jsonb, key text DEFAULT NULL::text, group_key text DEFAULT ''::text, priority integer DEFAULT 0, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, dedup_key text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
begin
    return penstock.enqueue_bytes(queue, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), key, group_key, priority, not_before, dedup_key, headers);
end $function$;
-- everybody may execute it

-- Writes one job whose payload is text, as UTF-8, and returns its id; else as enqueue_bytes.
CREATE OR REPLACE FUNCTION penstock.enqueue(queue text, payload text, key text DEFAULT NULL::text, group_key text DEFAULT ''::text, priority integer DEFAULT 0, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, dedup_key text DEFAULT NULL::text, headers jsonb DEFAULT NULL::jsonb)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
begin
    return penstock.enqueue_bytes(queue, pg_catalog.convert_to(payload, 'UTF8'), key, group_key, priority, not_before, dedup_key, headers);
end $function$;
-- everybody may execute it

-- Writes a job for each text, as UTF-8, in their order, and returns the ids; else as enqueue_many_bytes.
CREATE OR REPLACE FUNCTION penstock.enqueue_many(queue text, payloads text[], keys text[] DEFAULT NULL::text[], group_keys text[] DEFAULT NULL::text[], priorities integer[] DEFAULT NULL::integer[], not_befores timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], dedup_keys text[] DEFAULT NULL::text[], headers jsonb[] DEFAULT NULL::jsonb[])
 RETURNS SETOF bigint
 LANGUAGE plpgsql
AS $function$
begin
    return query select penstock.enqueue_many_bytes(queue, array(select pg_catalog.convert_to(p.payload, 'UTF8') from pg_catalog.unnest(payloads) with ordinality p(payload, i) order by p.i),
                                                keys, group_keys, priorities, not_befores, dedup_keys, headers);
end $function$;
-- everybody may execute it

-- Tells whether the nth job of this transaction's last enqueue was not written, because there was one with its dedup_key. Null if
-- that enqueue had no dedup_key, or was in another transaction.
CREATE OR REPLACE FUNCTION penstock.deduplicated(n bigint DEFAULT 1)
 RETURNS boolean
 LANGUAGE sql
AS $function$
    select told.it operator(pg_catalog.=) 't'
      from (select pg_catalog.substr(pg_catalog.current_setting(pg_catalog.concat('penstock.deduplicated_', (n operator(pg_catalog.-) 1) operator(pg_catalog./) 1000), true),
                                     ((n operator(pg_catalog.-) 1) operator(pg_catalog.%) 1000 operator(pg_catalog.+) 1)::pg_catalog.int4, 1)) told(it)
     where told.it operator(pg_catalog.<>) ''
$function$;
-- everybody may execute it

-- Takes up to n jobs of a group: they are gone when the caller's transaction commits, and back when it rolls back.
CREATE OR REPLACE FUNCTION penstock.dequeue(queue text, n integer DEFAULT 1, group_key text DEFAULT ''::text)
 RETURNS SETOF penstock.job
 LANGUAGE plpgsql
AS $function$
declare
    take constant text := penstock._queue_function(queue, 'take');
begin
    if n operator(pg_catalog.=) 1 and group_key operator(pg_catalog.=) '' then
        return query execute pg_catalog.concat('select * from ', 'penstock.', pg_catalog.quote_ident(pg_catalog.concat('dequeue_', queue)), '()');
    else
        return query execute pg_catalog.concat('select * from ', take, '($1, $2)') using n, coalesce(group_key, '');
    end if;
end $function$;
-- everybody may execute it

-- Leases up to n jobs of a group. A worker that does not ack, extend, release or retry them in time loses them: they run again.
CREATE OR REPLACE FUNCTION penstock.claim(queue text, n integer DEFAULT 1, lease interval DEFAULT '00:00:30'::interval, group_key text DEFAULT ''::text, worker text DEFAULT ''::text)
 RETURNS SETOF penstock.leased_job
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select * from ', penstock._queue_function(queue, 'claim'), '($1, $2, $3, $4)') using n, lease, coalesce(group_key, ''), worker;
end $function$;
-- everybody may execute it

-- Ends jobs, as ack_many does, and claims others with the same call: both, or neither. Behind the jobs it returns those of the
-- leases that were still held, as rows with nothing but a lease. Leases of what it claims may share a row: an ack of one waits
-- for the end of a transaction that acks another.
CREATE OR REPLACE FUNCTION penstock.ack_claim(queue text, leases bigint[], n integer DEFAULT 1, lease interval DEFAULT '00:00:30'::interval, group_key text DEFAULT ''::text, worker text DEFAULT ''::text)
 RETURNS SETOF penstock.leased_job
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select * from ', penstock._queue_function(queue, 'claim'), '($1, $2, $3, $4, $5)') using n, lease, coalesce(group_key, ''), worker, leases;
end $function$;
-- everybody may execute it

-- Removes jobs that are done, and returns the leases that were still held.
CREATE OR REPLACE FUNCTION penstock.ack_many(queue text, leases bigint[])
 RETURNS SETOF bigint
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select ', penstock._queue_function(queue, 'ack'), '($1)') using leases;
end $function$;
-- everybody may execute it

-- Removes a job that is done. Error: PS001 if its lease is lost.
CREATE OR REPLACE FUNCTION penstock.ack(queue text, lease bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
    held bigint;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'ack'), '(array[$1])') into held using lease;
    if held is null then
        perform penstock._lost(lease);
    end if;
end $function$;
-- everybody may execute it

-- Makes leases end by from now, and returns those that were still held.
CREATE OR REPLACE FUNCTION penstock.extend_many(queue text, leases bigint[], by interval)
 RETURNS SETOF bigint
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select lease from ', penstock._queue_function(queue, 'extend'), '($1, $2)') using leases, by;
end $function$;
-- everybody may execute it

-- Makes a lease end by from now, and returns when that is. Error: PS001.
CREATE OR REPLACE FUNCTION penstock.extend(queue text, lease bigint, by interval)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
AS $function$
declare
    until timestamptz;
begin
    execute pg_catalog.concat('select until from ', penstock._queue_function(queue, 'extend'), '(array[$1], $2)') into until using lease, by;
    if until is null then
        perform penstock._lost(lease);
    end if;
    return until;
end $function$;
-- everybody may execute it

-- Says of a job that runs how far it is, or what came of it, until the next report. A queue that keeps jobs that are done also
-- keeps that. Up to 64 KiB as text. Error: PS001.
CREATE OR REPLACE FUNCTION penstock.report(queue text, lease bigint, report jsonb)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
    until timestamptz;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'report'), '($1, $2)') into until using lease, report;
    if until is null then
        perform penstock._lost(lease);
    end if;
end $function$;
-- everybody may execute it

-- Gives jobs back, to run again after a while: no attempt is spent. Returns the leases that were still held.
CREATE OR REPLACE FUNCTION penstock.release_many(queue text, leases bigint[], after interval DEFAULT NULL::interval)
 RETURNS SETOF bigint
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select ', penstock._queue_function(queue, 'release'), '($1, $2)') using leases, after;
end $function$;
-- everybody may execute it

-- Gives a job back, to run again after a while: no attempt is spent. Error: PS001.
CREATE OR REPLACE FUNCTION penstock.release(queue text, lease bigint, after interval DEFAULT NULL::interval)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
    held bigint;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'release'), '(array[$1], $2)') into held using lease, after;
    if held is null then
        perform penstock._lost(lease);
    end if;
end $function$;
-- everybody may execute it

-- Has a job run again after a while, null: after one that grows with its attempts. False: that was its last attempt, and it is a
-- dead letter now. Error: PS001.
CREATE OR REPLACE FUNCTION penstock.retry(queue text, lease bigint, after interval DEFAULT NULL::interval, error text DEFAULT ''::text)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
declare
    due timestamptz;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'fail'), '($1, $2, $3, false)') into due using lease, after, error;
    return due is not null;
end $function$;
-- everybody may execute it

-- Makes a job a dead letter. Error: PS001.
CREATE OR REPLACE FUNCTION penstock.dead_letter(queue text, lease bigint, error text DEFAULT ''::text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'fail'), '($1, null, $2, true)') using lease, error;
end $function$;
-- everybody may execute it

-- _count_of is what the function count of a queue returns, for clients that ask of several.
CREATE OR REPLACE FUNCTION penstock._count_of(queue text, most integer)
 RETURNS bigint[]
 LANGUAGE plpgsql
AS $function$
declare
    counted bigint[];
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'count'), '($1)') into counted using most;
    return counted;
end $function$;
-- everybody may execute it

-- _done_of is what the function done_jobs of a queue returns: a page of jobs, and where the next one begins.
CREATE OR REPLACE FUNCTION penstock._done_of(queue text, most integer, before text, ids bigint[])
 RETURNS jsonb
 LANGUAGE plpgsql
AS $function$
declare
    done jsonb;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'done_jobs'), '($1, $2, $3)') into done using most, before, ids;
    return done;
end $function$;
-- everybody may execute it

-- Removes jobs wherever they are, and returns how many. Of one that runs the lease is lost.
CREATE OR REPLACE FUNCTION penstock.cancel(queue text, ids bigint[])
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
declare
    many int;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'cancel'), '($1)') into many using ids;
    return many;
end $function$;
-- everybody may execute it

-- Pauses a queue: claims and dequeues return no job until resume_queue.
CREATE OR REPLACE FUNCTION penstock.pause_queue(name text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    execute pg_catalog.concat('select ', penstock._queue_function(name, 'pause'), '(true)');
end $function$;
-- everybody may execute it

-- Ends the pause of a queue.
CREATE OR REPLACE FUNCTION penstock.resume_queue(name text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    execute pg_catalog.concat('select ', penstock._queue_function(name, 'pause'), '(false)');
end $function$;
-- everybody may execute it

-- Has dead letters run again, with all attempts before them, and returns how many.
CREATE OR REPLACE FUNCTION penstock.retry_dead_jobs(queue text, ids bigint[])
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
declare
    many int;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'retry_dead'), '($1)') into many using ids;
    return many;
end $function$;
-- everybody may execute it

-- Removes dead letters, and returns how many.
CREATE OR REPLACE FUNCTION penstock.discard_dead_jobs(queue text, ids bigint[])
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
declare
    many int;
begin
    execute pg_catalog.concat('select ', penstock._queue_function(queue, 'discard_dead'), '($1)') into many using ids;
    return many;
end $function$;
-- everybody may execute it

-- Counts a queue's jobs by where they are, and says how old the oldest ready one is.
CREATE OR REPLACE FUNCTION penstock.queue_status(queue text)
 RETURNS TABLE(ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval)
 LANGUAGE sql
AS $function$
    select c.n[1], c.n[2], c.n[3], c.n[4], c.n[5], c.n[6] operator(pg_catalog.*) interval '1 microsecond' from penstock._count_of(queue, null) c(n)
$function$;
-- everybody may execute it

-- Lists the groups that have jobs to be taken, among some, or after one by name.
CREATE OR REPLACE FUNCTION penstock.ready_groups(queue text, group_keys text[] DEFAULT NULL::text[], behind text DEFAULT ''::text, most integer DEFAULT 100)
 RETURNS SETOF text
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select * from ', penstock._queue_function(queue, 'ready'), '($1, $2, $3)') using group_keys, behind, most;
end $function$;
-- everybody may execute it

-- Counts the jobs of each group. Of those that are ready or wait it counts up to 1,000; more says there are more.
CREATE OR REPLACE FUNCTION penstock.queue_groups(queue text, after text DEFAULT ''::text, most integer DEFAULT 1000)
 RETURNS TABLE(group_key text, ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval, more boolean)
 LANGUAGE plpgsql
AS $function$
begin
    return query execute pg_catalog.concat('select g.group_key, g.ready, g.running, g.delayed, g.waiting, g.dead, g.oldest operator(pg_catalog.*) interval ''1 microsecond'', g.more from ',
                                           penstock._queue_function(queue, 'count_groups'), '($1, $2) g') using after, most;
end $function$;
-- everybody may execute it

-- Lists kept jobs that are done, the latest first: up to most, behind the position of one.
CREATE OR REPLACE FUNCTION penstock.done_jobs(queue text, most integer DEFAULT 100, before text DEFAULT NULL::text)
 RETURNS TABLE(id bigint, key text, group_key text, priority smallint, attempt integer, created_at timestamp with time zone, claimed_at timestamp with time zone, finished_at timestamp with time zone, worker text, failures jsonb, report jsonb, "position" text)
 LANGUAGE sql
AS $function$
    select d.id, d.key, d.group_key, d.priority, d.attempt, d.created_at, d.claimed_at, d.finished_at, d.worker, d.failures, d.report, d."position"
      from pg_catalog.jsonb_to_recordset(penstock._done_of(queue, most, before, null) operator(pg_catalog.->) 'jobs')
        as d(id bigint, key text, group_key text, priority smallint, attempt int, created_at timestamptz, claimed_at timestamptz, finished_at timestamptz, worker text, failures jsonb, report jsonb, "position" text)
$function$;
-- everybody may execute it

-- Does at once what calls do now and then: leases that ended, jobs that are due, schedules, storage.
CREATE OR REPLACE FUNCTION penstock.maintain_queue(name text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    execute pg_catalog.concat('select ', penstock._queue_function(name, 'maintain'), '()');
end $function$;
-- everybody may execute it

-- _enqueue_functions is the text of what enqueues.
CREATE OR REPLACE FUNCTION penstock._enqueue_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select _qualified($$

-- {enqueue} writes one job and returns its id; of a duplicate, the first one's. Mostly it is one expression and a plain INSERT, at
-- which the queue's trigger looks; without a search_path, as dequeue_NAME.
create or replace function {enqueue}(payload bytea, key text, group_key text, priority int, not_before timestamptz, dedup_key text, headers jsonb) returns bigint
language plpgsql volatile security definer as $fn$
declare
    made bigint;
begin
    if not_before is null and dedup_key is null and coalesce(priority, 0) >= '-16' and coalesce(priority, 0) <= '15'
       and coalesce(current_setting('penstock.deduplicated_0', true), '') = '' then
        insert into {queue} (key, group_key, priority, headers, payload)
        values (key, coalesce(group_key, ''), coalesce(priority, 0), headers, payload) returning seq into made;
        return made;
    end if;
    return (select e.id from {enqueue_many}(array[payload], array[key], array[group_key], array[priority], array[not_before], array[dedup_key], array[headers]) e(id));
end $fn$;
$$) || $$

-- {raise} raises flags, see _validate_job: those up to {keyed}.
create or replace function {raise}(wanted bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    perform {schema}._write_flags({flags}, wanted & ({keyed} * 2 - 1));
end $fn$;

-- {enqueue_many} writes a job for each payload and returns their ids in order. Without delays and dedup keys that is one INSERT. With these it goes
-- job by job: all keys are locked first, in one order; a delayed job goes to _scheduled; of a duplicate the first one's id is returned.
create or replace function {enqueue_many}(payloads bytea[], keys text[], group_keys text[], priorities int[], not_befores timestamptz[], dedup_keys text[], headers jsonb[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    many constant int := coalesce(cardinality(payloads), 0);
    keyed constant boolean := array_remove(dedup_keys, null) <> '{}';
    made bigint;
    known boolean;
    letters text = '';
    part int = 0;
    job record;
begin
    if coalesce(cardinality(keys), many) <> many or coalesce(cardinality(group_keys), many) <> many or coalesce(cardinality(priorities), many) <> many
       or coalesce(cardinality(not_befores), many) <> many or coalesce(cardinality(dedup_keys), many) <> many or coalesce(cardinality(headers), many) <> many then
        raise exception 'the arrays differ in length' using errcode = '22023', hint = 'give each as many elements as payloads, or null instead of the array';
    end if;
    while current_setting('penstock.deduplicated_' || part, true) <> '' loop -- they tell of this call, a letter per job: 1000 each, because deduplicated goes over all of one
        perform set_config('penstock.deduplicated_' || part, '', true);
        part := part + 1;
    end loop;
    if array_remove(not_befores, null) <> '{}' or keyed then
        {readable many}
        perform {schema}._refuse_job(u.payload, u.key, u.group_key, u.priority, u.headers, u.dedup_key)
           from unnest(payloads, keys, group_keys, priorities, headers, dedup_keys) u(payload, key, group_key, priority, headers, dedup_key);
        if keyed then
            perform {schema}._hold_keys({id}, dedup_keys); -- all before the first, so that two calls do not wait for each other
        end if;
        -- Never by subscripts: to find an element of texts goes over all before it.
        for job in select * from unnest(payloads, keys, group_keys, priorities, not_befores, dedup_keys, headers) with ordinality
                            u(payload, key, group_key, priority, not_before, dedup_key, headers, i) order by i loop
            made := case when job.dedup_key is not null then {schema}._first_of({id}, job.dedup_key) end;
            known := made is not null;
            if known then
                null; -- it is there
            elsif job.not_before > clock_timestamp() then
                if job.not_before = 'infinity' then -- in _scheduled that means something else
                    raise exception 'not_before is infinity' using errcode = '22023', hint = 'give a time, or do not enqueue the job yet';
                end if;
                made := nextval({seq});
                insert into {schema}._scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload)
                values (made, {id}, 0, job.not_before, clock_timestamp(), coalesce(job.priority, 0), coalesce(job.group_key, ''), job.key, job.headers, job.payload);
            else
                insert into {queue} (key, group_key, priority, headers, payload)
                values (job.key, coalesce(job.group_key, ''), coalesce(job.priority, 0), job.headers, job.payload) returning seq into made;
            end if;
            if job.dedup_key is not null and not known then
                insert into {schema}._dedup (queue, id, dedup_key) values ({id}, made, job.dedup_key);
            end if;
            if keyed then
                letters := concat(letters, known);
                if job.i % 1000 = 0 or job.i = many then
                    perform set_config('penstock.deduplicated_' || (job.i - 1) / 1000, letters, true);
                    letters := '';
                end if;
            end if;
            return next made;
        end loop;
        return;
    end if;
    if cardinality(priorities) > 0 then -- at all else the queue's trigger looks
        perform {schema}._refuse_job('', null, null, p, null, null) from unnest(priorities) p where p not between -16 and 15;
    end if;
    return query
    insert into {queue} (key, group_key, priority, headers, payload)
    select j.key, coalesce(j.group_key, ''), coalesce(j.priority, 0), j.headers, j.payload
      from unnest(payloads, keys, group_keys, priorities, headers) j(payload, key, group_key, priority, headers)
    returning seq;
end $fn$;

$$ $function$;

-- _first_of is the id that a dedup_key stands for, null once its window has passed.
CREATE OR REPLACE FUNCTION penstock._first_of(queue integer, key text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$
declare
    since constant timestamptz := clock_timestamp() - (select q.dedup_window from _queue q where q.id = queue);
    made  bigint;
    leaf  int;
begin
    foreach leaf in array _listed('_dedup_slot') loop
        if leaf = 0 then
            made := (select d.id from _dedup_0 d where d.queue = _first_of.queue and d.dedup_key = key and d.at > since order by d.at desc limit 1);
        else
            made := (select d.id from _dedup_1 d where d.queue = _first_of.queue and d.dedup_key = key and d.at > since order by d.at desc limit 1);
        end if;
        exit when made is not null;
    end loop;
    return made;
end $function$;

-- _failed adds a failure to a job's history and keeps the latest ten.
CREATE OR REPLACE FUNCTION penstock._failed(failures jsonb, attempt integer, error text)
 RETURNS jsonb
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select jsonb_agg(e order by i)
      from (select e, i from jsonb_array_elements(case jsonb_typeof(failures) when 'array' then failures else '[]' end || jsonb_build_object(
                'attempt', attempt, 'error', coalesce(error, ''),
                'at', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) with ordinality x(e, i)
             order by i desc limit 10) latest
$function$;

-- _refuse_job raises what is wrong with a job, as a producer is to read it.
CREATE OR REPLACE FUNCTION penstock._refuse_job(payload bytea, key text, group_key text, priority integer, headers jsonb, dedup_key text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the job needs none';
    elsif octet_length(payload) > 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', octet_length(payload)
        using errcode = '23514', hint = 'store it elsewhere and enqueue a reference';
    elsif octet_length(key) > 1024 then
        raise exception 'the key has % bytes, the limit is 1024', octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(group_key) > 256 then
        raise exception 'the group has % bytes, the limit is 256', octet_length(group_key) using errcode = '23514', hint = 'use a shorter name, or a hash of it';
    elsif priority not between -16 and 15 then
        raise exception 'the priority is %, expected -16 to 15', priority using errcode = '23514', hint = 'lower numbers run first; 0 is the default';
    elsif octet_length(dedup_key) > 256 then
        raise exception 'the dedup_key has % bytes, the limit is 256', octet_length(dedup_key) using errcode = '23514', hint = 'use a hash of it';
    elsif jsonb_typeof(headers) <> 'object' or octet_length(headers::text) > 65536 then
        perform _refuse_headers(headers);
    end if;
end $function$;
-- everybody may execute it

-- _lost raises the error for a lease that is not there any more. It returns a time so that it fits into an expression.
CREATE OR REPLACE FUNCTION penstock._lost(lease bigint)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    raise exception 'lease % is lost', coalesce(lease::text, 'null')
    using errcode = 'PS001', hint = 'it has ended, or the job was settled or cancelled: extend leases while a job runs, or claim with a longer one';
end $function$;
-- everybody may execute it

-- _hold_keys locks dedup_keys until the transaction ends, so that whoever enqueues with one of them looks when the other has
-- ended. A key has a lock of its own and, shared, one of the 1,024 of its queue. The server's locks are few: a transaction with
-- more than a hundred keys takes from the next call on only the latter, and not shared. Without waiting, it may return false, and
-- hold some.
CREATE OR REPLACE FUNCTION penstock._hold_keys(queue integer, keys text[], waiting boolean DEFAULT true)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
declare
    many int := coalesce(nullif(current_setting('penstock.dedup_keys', true), '')::int, 0) + cardinality(keys);
    k    record;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a dedup_key needs the isolation level read committed, this transaction is %', current_setting('transaction_isolation')
        using errcode = '25001', hint = 'it does not see what others have enqueued since it began; begin it with: begin isolation level read committed';
    end if;
    if waiting then
        perform set_config('penstock.dedup_keys', many::text, true);
    end if;
    for k in select h.bucket, array_agg(distinct h.hash order by h.hash) as hashes -- in one order, so that two calls do not wait for each other
               from (select hash, (queue::bigint * 1024 + (hash & 1023) & 2147483647)::int as bucket
                       from (select hashtextextended(x, -queue) as hash from unnest(keys) x where x is not null offset 0) x) h
              group by h.bucket order by h.bucket loop
        if many > 100 then
            if waiting then
                perform pg_advisory_xact_lock(1885695588, k.bucket); -- "pend"
            elsif not pg_try_advisory_xact_lock(1885695588, k.bucket) then
                return false;
            end if;
        elsif waiting then
            perform pg_advisory_xact_lock_shared(1885695588, k.bucket);
            perform pg_advisory_xact_lock(h) from unnest(k.hashes) h;
        elsif not pg_try_advisory_xact_lock_shared(1885695588, k.bucket)
              or (select not bool_and(pg_try_advisory_xact_lock(h)) from unnest(k.hashes) h) then
            return false;
        end if;
    end loop;
    return true;
end $function$;

-- _validate_job is the trigger of a queue, written like _validate_message. Its argument is the name of the queue's register of
-- flags, which is also that of the function that raises some: bit 16 + p for jobs of priority p, bit 32 for jobs with a key. Only
-- a queue's enqueuers may call that. It need not roll back: a flag too many costs a scan.
CREATE OR REPLACE FUNCTION penstock._validate_job()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
    wanted bigint;
begin
    
    if new.priority operator(pg_catalog.=) 0::smallint and new.key is null and new.headers is null
       and pg_catalog.octet_length(new.group_key) operator(pg_catalog.<=) 256 and new.attempt operator(pg_catalog.<=) 1000000000
       and pg_catalog.octet_length(new.payload) operator(pg_catalog.<=) 67108864 then
        return new;
    end if;
    if new.group_key is null then
        raise exception 'the group is null' using errcode = '22023', hint = $h$leave the column out, or use '' for the jobs without one$h$;
    elsif new.priority is null then
        raise exception 'the priority is null' using errcode = '22023', hint = 'leave the column out, or use 0, the default';
    end if;
    if new.attempt operator(pg_catalog.>) 1000000000 then -- by hand: one more is to be a number
        new.attempt := 1000000000;
    end if;
    perform penstock._refuse_job(new.payload, new.key, new.group_key, new.priority, new.headers, null);
    wanted := (1::bigint operator(pg_catalog.<<) (16 operator(pg_catalog.+) new.priority))
              operator(pg_catalog.|) case when new.key is null then 0 else 4294967296 end;
    if (pg_catalog.pg_sequence_last_value(tg_argv[0]::pg_catalog.regclass) operator(pg_catalog.&) wanted) operator(pg_catalog.<>) wanted then
        execute pg_catalog.format('select %s($1)', tg_argv[0]) using wanted;
    end if;
    return new;
end $function$;

-- _skip_map_functions is the text of what knows where jobs may be.
CREATE OR REPLACE FUNCTION penstock._skip_map_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {skip_map} writes a new skip map if that brings something. It reads the jobs that are there, within the
-- ranges of the last one. What lies between them is gone, as far as the sequence had come when
-- the last one was written: its xid lies between the drawing of such a seq and the
-- snapshot taken here (docs/decisions/0003), so whoever drew it has ended, or is in
-- the snapshot's list and pending from now on. An xid of the future is another cluster's, which a restored
-- skip map waits for: it has ended as well.
--
-- The snapshot comes first, then the list of segments: what the one sees is in the other.
create or replace function {skip_map}(in_group text, in_priority smallint, bound bigint default null) returns {schema}._skip_map
language plpgsql volatile as $fn$
declare
    most     int := case width_bucket(random(), array[0.02, 0.3]) when 0 then 2048 when 1 then 64 else 1 end; -- one is enough while jobs go in order
    no_xid   boolean := bound is not null or pg_current_xact_id_if_assigned() is null;
    now_seen bigint := coalesce(bound, pg_sequence_last_value({seq}), 0);
    was      {schema}._skip_map := {schema}._newest_skip_map({id}, in_group, in_priority);
    snap     pg_snapshot := pg_current_snapshot();
    ring     bigint := pg_sequence_last_value({ring});
    slots    smallint[] := case when ring = was.turn then was.slots else {slots} end;
    here     smallint;
    seqs     bigint[] := '{}';
    ended    xid8[];
    found    int8multirange;
    late     int8multirange := '{}';
    gone     int8multirange;
    new      {schema}._skip_map;
begin
    if was.n is null then
        was.base := 0;
        was.lo := '{0}';
        was.hi := '{9223372036854775806}';
        was.seen := 0;
        was.xid := '0';
        was.turn := -1;
        was.pending := '{}';
    end if;
    -- A skip map of this very transaction bounds nothing yet: its xid has not ended, and one
    -- before it may be missing from the snapshot's list for being the highest of all.
    new.base := case when was.xid < pg_snapshot_xmax(snap) then was.seen else was.base end;
    if was.lo[1] > now_seen and cardinality(was.lo) = 1 and was.pending = '{}' and was.seen = now_seen and was.turn = ring then
        return was; -- nothing has come since, and all is gone
    end if;
    -- Nothing is locked: one whose taking is not committed is still seen. It goes from older segments to
    -- younger ones, as jobs do that are carried over, so it misses none that moves meanwhile.
    for i {older_first} loop
        here := slots[i];
{segments here}
        seqs := seqs || array(
            select v.seq from unnest(was.lo, was.hi) r(lo, hi) cross join lateral (
                select t.seq from {segment} t
                 where t.group_key = in_group and t.priority = in_priority and t.seq >= r.lo and t.seq <= least(r.hi, new.base)
                 order by t.seq {dir} limit most) v limit most);
{end}
    end loop;
    if cardinality(slots) > 1 then
        seqs := array(select s from unnest(seqs) s order by s {dir} limit most);
    end if;
    new.pending := array(select x from unnest(was.pending) x where not (pg_visible_in_snapshot(x, snap) or x >= pg_snapshot_xmax(snap))
                         union
                         select x from pg_snapshot_xip(snap) x where new.base = was.seen and x < was.xid order by x);
    if no_xid then
        new.seen := now_seen;
    else -- it was drawn before the sequence was read, and bounds nothing: _refresh will see to it
        new.seen := was.seen;
        perform setval({seen}, pg_sequence_last_value({seen}) | 1);
    end if;
    gone := int8multirange(int8range(0, 9223372036854775807)) - (select range_agg(int8range(i.lo, i.hi, '[]')) from unnest(was.lo, was.hi) i(lo, hi));
    ended := array(select x from unnest(was.pending) x where pg_visible_in_snapshot(x, snap) or x >= pg_snapshot_xmax(snap));
    if ended <> '{}' then
        for i {older_first} loop
            here := slots[i];
{segments here}
            select case when count(*) <= 100 then range_agg(int8range(t.seq, t.seq, '[]'))
                        else int8multirange(int8range(min(t.seq), max(t.seq), '[]')) end
              into found
              from unnest(ended) x cross join lateral (
                select l.seq, l.group_key, l.priority from {segment} l where l.xid = x offset 0) t -- by xid: a planner might prefer the other index
             where t.group_key = in_group and t.priority = in_priority;
{end}
            late := late + coalesce(found, '{}');
        end loop;
    end if;
    gone := gone + int8multirange(case when cardinality(seqs) < most then int8range(0, new.base, '[]')
                                       when {lifo} then int8range(seqs[most], new.base, '[]')
                                       else int8range(0, seqs[most], '[]') end)
            - coalesce((select range_agg(int8range(s, s, '[]')) from unnest(seqs) s), '{}') - late;
    select coalesce(range_agg(g.r), '{}') into gone
      from (select r from unnest(gone) r where lower(r) = 0 or upper(r) - lower(r) > 64
             order by lower(r) = 0 desc, upper(r) - lower(r) desc limit 64) g;
    select array_agg(lower(r) order by lower(r) {dir}), array_agg(upper(r) - 1 order by lower(r) {dir}) into new.lo, new.hi
      from unnest(int8multirange(int8range(0, 9223372036854775807)) - gone) r;
    if new.seen = was.seen and ring = was.turn and new.lo = was.lo and new.hi = was.hi and new.pending = was.pending then
        return was;
    end if;
    -- A snapshot that is kept, and from before a segment left, misses what was carried over from it.
    if current_setting('transaction_isolation') <> 'read committed'
       and (not exists (select from {schema}._segment s where s.queue = {id} and s.turn = ring / 1024) or pg_sequence_last_value({ring}) <> ring) then
        was.slots := slots;
        return was;
    end if;
    insert into {schema}._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
    values ({id}, new.base, new.seen, case when no_xid then pg_current_xact_id() else was.xid end, ring, in_priority, in_group, new.lo, new.hi, new.pending, slots)
    returning * into new;
    return new;
end $fn$;

$$ $function$;

-- _take_functions is the text of take and take_rows: two functions, because another level copies every job once more.
CREATE OR REPLACE FUNCTION penstock._take_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
select string_agg(replace(replace(replace(replace(replace(body, '{made}', made), '{type}', type), '{row}', columns), '{as_whom}', whom), '{then}', afterwards), '')
  from (values ('{take}', '{schema}.job', '{job}', 'security definer set search_path = pg_catalog, pg_temp', '{maintain_if_due}'),
               ('{take_rows}', '{queue}', 't.*', '', '')) v(made, type, columns, whom, afterwards),
       (select $$
-- {made} deletes up to n jobs of a group and returns them, by priority and in order. take returns them as jobs, take_rows as the
-- queue's rows. A batch goes on where the last one ended; else the skip map says where jobs may be. It locks rows that are free, segment
-- by segment as listed, and waits for none. due says whether to write a new skip map; null: now and then.
create or replace function {made}(n int, in_group text, due boolean default null) returns setof {type}
language plpgsql volatile {as_whom} set enable_seqscan = off set enable_bitmapscan = off
set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags bigint := pg_sequence_last_value({flags});
    p     int := 0;
    m     record;
    here  smallint;
    low   bigint;
    high  bigint;
    todo  int := n;
    got   int;
    path  bigint;
    pos   bigint;
    most  int;
    fresh boolean;
begin
    if (n between 1 and 10000) is not true then
        raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call it again for more';
    end if;
    -- A batch that goes on where the last one ended does not step over what others hold. Nor does a claim of one job;
    -- a dequeue of one has tried that.
    if (n > 1 or due is not false) and in_group = '' and flags = {plain} and not {lifo} then
        loop
            path := pg_sequence_last_value({fast_path}) - {now} * 4096;
            exit when due or path not between 0 and 2047;
            if path < 1024 then -- see {scan}
                path := path + 1024;
                perform setval({fast_path}, {now} * 4096 + path);
            end if;
            pos := pg_sequence_last_value({next});
            most := least(todo, pg_sequence_last_value({seq}) - pos); -- else the next jobs would come after those behind them
            exit when (most > 0) is not true;
            pos := setval({next}, pos + most) - most;
{segments path 1024}
            return query
            with d as (
                delete from {segment} t where t.ctid = any (array(
                    select t.ctid from {segment} t
                     where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + 2 * todo and t.key is null
                     order by t.seq limit todo for update skip locked))
                returning t.*)
            select {row} from d t order by t.seq;
{end}
            get diagnostics got = row_count;
            todo := todo - got;
            exit when todo <= 0 or got = 0;
        end loop;
        if todo <= 0 then
            {then}
            return;
        end if;
    end if;
    -- A new skip map pays once for so many jobs, where much may be gone.
    due := coalesce(due, random() < case when n < 16 then n::float8 / '64' else '0.125' end);
    if flags <> {plain} then
        if flags & {watched} <> 0 and (select q.paused from {schema}._queue q where q.id = {id}) then
            {then}
            return;
        end if;
        if flags & ({keyed} | {watched}) <> 0 then
            return query select {row} from {take_keyed}(n, in_group, false) t;
            {then}
            return;
        end if;
        p := -16;
    end if;
    <<levels>>
    loop
        if p = 0 or flags & (1::bigint << (16 + p)) <> 0 then
{leaf of skip_map}
            select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from {leaf} k
             where k.queue = {id} and k.group_key = in_group and k.priority = p order by k.n desc limit 1;
{end}
            fresh := pg_current_xact_id_if_assigned() is null;
            if m.n is null or due and pg_sequence_last_value({seq}) - m.lo[1] > 256
               or cardinality(m.pending) > 0 and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot()) or x >= pg_snapshot_xmax(pg_current_snapshot())) then
                select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from {skip_map}(in_group, p::smallint) k;
            end if;
            if m.turn <> pg_sequence_last_value({ring}) then
                m.slots := {slots};
            end if;
            low := m.lo[1];
            high := case when cardinality(m.lo) = 1 then m.hi[1] end;
            -- With mode 2 less than a second ago few jobs waited: whoever found that sets the registers anew himself.
            if path is not null and todo = n and pg_sequence_last_value({seq}) - low >= 512 and fresh
               and not (path between -40 * 4096 and 4095 and (path + 40 * 4096) % '4096' >= 2048) then
                perform {schema}._reposition({name}, n, low, m.slots);
            end if;
            -- A job with a key, the first one of the queue, may be committed
            -- after the flags were read: it is left to {take_keyed}. The segment is named, so that
            -- the statement opens one table and not the whole ring. All rows are locked first and
            -- deleted then: locked one by one between deletes, they make workers who go over the same
            -- rows meet at each.
            foreach here in array m.slots loop
{segments here}
                if high is null then
                    return query
                    with d as (
                        delete from {segment} t where t.ctid = any (array(
                            select v.ctid from unnest(m.lo, m.hi) i(lo, hi) cross join lateral (
                                select t.ctid from {segment} t
                                 where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.key is null
                                 order by t.seq {dir} limit todo for update skip locked) v limit todo))
                        returning t.*)
                    select {row} from d t order by t.seq {dir};
                else
                    return query
                    with d as (
                        delete from {segment} t where t.ctid = any (array(
                            select t.ctid from {segment} t
                             where t.group_key = in_group and t.priority = p and t.seq >= low and t.seq <= high and t.key is null
                             order by t.seq {dir} limit todo for update skip locked))
                        returning t.*)
                    select {row} from d t order by t.seq {dir};
                end if;
{end}
                get diagnostics got = row_count;
                todo := todo - got;
                exit levels when todo <= 0;
            end loop;
        end if;
        exit when p = 15 or flags = {plain};
        p := p + 1;
    end loop;
    {then}
end $fn$;

$$) t(body)
$function$;

-- _listed_slots lists the segments that may hold jobs, in the order in which to scan them. What takes jobs looks into no other:
-- its transaction may go on for long, and what it has looked into cannot be truncated until it ends.
CREATE OR REPLACE FUNCTION penstock._listed_slots(queue integer, lifo boolean, ring regclass)
 RETURNS smallint[]
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    return (
    select case when s.list @> array[s.here] then s.list
                when lifo then s.here || s.list else s.list || s.here end
      from (select (pg_sequence_last_value(ring) % 1024)::smallint as here,
                   coalesce(array_agg(g.slot order by case when lifo then -g.turn else g.turn end), '{}') as list
              from _segment g where g.queue = _listed_slots.queue and g.retired is null) s);
end $function$;

-- _newest_skip_map is the newest skip map of a group and priority.
CREATE OR REPLACE FUNCTION penstock._newest_skip_map(queue integer, group_key text, priority smallint)
 RETURNS penstock._skip_map
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$
declare
    m _skip_map;
begin
    if pg_sequence_last_value('_skip_map_slot') = 0 then
        select * into m from _skip_map_0 k where k.queue = _newest_skip_map.queue and k.group_key = _newest_skip_map.group_key and k.priority = _newest_skip_map.priority order by k.n desc limit 1;
    else
        select * into m from _skip_map_1 k where k.queue = _newest_skip_map.queue and k.group_key = _newest_skip_map.group_key and k.priority = _newest_skip_map.priority order by k.n desc limit 1;
    end if;
    return m;
end $function$;

-- _reposition says in the registers where batches go on: at the first job that is free. take calls it before it goes by the skip
-- map, and takes what is there itself.
CREATE OR REPLACE FUNCTION penstock._reposition(queue text, n integer, low bigint, slots smallint[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$
declare
    path constant regclass := _q(format('_%s.fast_path', queue))::regclass;
    next constant regclass := _q(format('_%s.next', queue))::regclass;
    was  constant bigint := pg_sequence_last_value(path);
    came constant bigint := pg_sequence_last_value(_q(format('_%s.seq', queue))::regclass);
    now  constant bigint := extract(epoch from clock_timestamp()) * 40;
    pos  bigint := pg_sequence_last_value(next);
    free bigint;
    here smallint;
begin
    if now - was / 4096 < 40 and was % 4096 < 2048 then -- others need not take the slow path meanwhile
        perform setval(path, now * 4096 + 1024 + was % 1024);
    end if;
    if pos > came then
        pos := 0; -- drawn when there was nothing left
    end if;
    foreach here in array slots loop
        execute format($sql$
            select t.seq from %s t
             where t.group_key = '' and t.priority = 0 and t.seq >= $1 and t.key is null order by t.seq limit 1 for update skip locked$sql$,
            _q(format('_%s.%s', queue, here))) into free using low;
        exit when free is not null;
    end loop;
    if free >= pos - n and came - free >= 64 + n then -- else somebody is just coming to what he has drawn, or it appeared behind
        perform setval(next, greatest(pos, free + n - 1)), setval(path, (extract(epoch from clock_timestamp()) * 40)::bigint * 4096 + 1024 + here); -- beyond what this call takes
    else
        perform setval(path, 0);
    end if;
end $function$;

-- _lease_functions is the text of what begins and ends leases.
CREATE OR REPLACE FUNCTION penstock._lease_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select replace(regexp_replace(replace($$

-- {claim} takes jobs from the ring and leases them. Then it ends the jobs of acks, as {ack}
-- does: what a worker has done and what it wants next go with one call. Of acks those come
-- back that were held, behind the jobs, as rows with nothing but a lease. They are ended
-- last, because that draws an xid, and a skip map made after it bounds nothing (see {skip_map}).
--
-- From a backlog it takes what comes behind the position in the registers, if nobody has ever locked it, and moves that
-- on; here, because a function that returns rows to another has each copied once more, and costs a claim of one job half. It looks
-- behind the position five times a second, not forty as {scan}: whoever finds nothing there takes three to five times as long. To
-- lock each job before it is deleted takes as long again as all else: another claim that has drawn the same position,
-- which is rare, waits for this one to commit.
--
-- If it is to end jobs, if only none ('{}'), jobs from a backlog share a row: a copy of each with its entries in indexes costs most of
-- a claim. Whoever acks one of them waits until a transaction that acks another has ended. {ack} and _part know such rows.
--
-- While few jobs wait it has another fast path, one statement from where registers say, as
-- dequeue_NAME has (docs/decisions/0008). A claim that went by the skip map and left nothing
-- sets them, to 64 seqs before the latest, so that what is in flight now will be found. They
-- hold for these 25 ms and the next: there is nobody else who would move them on meanwhile. There
-- are no keys then, and what is to be ended mostly has its leases in the same table: without a
-- call of {ack}, which opens both, that costs half.
create or replace function {claim}(n int, lease interval, in_group text, worker text, acks bigint[] default null) returns setof {schema}.leased_job
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags constant bigint := pg_sequence_last_value({flags});
    until constant timestamptz := clock_timestamp() + least(lease, interval '1000 years'); -- more is refused
    came  bigint := case when flags = {plain} and in_group = '' and not {lifo} then coalesce(pg_sequence_last_value({seq}), 0) end;
    path  constant bigint := case when came - pg_sequence_last_value({next}) <= 512
                                       and pg_sequence_last_value({fast_path}) - {now} * 4096 - 2048 - pg_sequence_last_value({ring}) % 1024 in (0, -4096)
                                  then pg_sequence_last_value({ring}) % 1024 end;
    leaf  int := pg_sequence_last_value({lease_slot}) % 2;
    due   boolean;
    drawn bigint;
    pos   bigint;
    got   int;
    most  int;
    base  bigint;
    empty int := 0;
begin
    if (n between 1 and 10000 and lease > interval '0' and lease <= interval '1000 years' and coalesce(octet_length(worker), 0) <= 256) is not true then
        if (n between 1 and 10000) is not true then
            raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call claim again for more';
        elsif octet_length(worker) > 256 then
            raise exception 'the worker has % bytes, the limit is 256', octet_length(worker) using errcode = '23514', hint = 'use a shorter name';
        end if;
        raise exception 'the lease is %, expected more than nothing and at most 1000 years', coalesce(lease::text, 'null')
        using errcode = '22023', hint = 'give the time a job takes and some more, for example interval ''30 s''';
    end if;
    if path is null and came is not null then -- from a backlog
        drawn := pg_sequence_last_value({fast_path}) - ({now} - 7) * 4096;
        if drawn between 0 and 32767 and drawn % 4096 < 2048 then
            if drawn % 4096 < 1024 then -- see {scan}
                drawn := drawn + 1024;
                perform setval({fast_path}, ({now} - 7) * 4096 + drawn);
            end if;
            drawn := drawn % 1024 + 1024;
            loop
                pos := pg_sequence_last_value({next});
                most := least(n, came - pos, case when acks is null then 10000 else 255 end);
                exit when (most > 0) is not true;
                -- Of one nobody else draws the same, and mostly no WAL is written. An assignment costs a third of a PERFORM.
                pos := case when most = 1 then nextval({next}) - 1 else setval({next}, pos + most) - most end;
                if acks is null or most < 8 then
{segments drawn 1024}
{leaf of lease}
                    return query
                    with d as ({drawn})
                    insert into {leaf} as l (slot, {lease_columns})
                    select leaf, {lease_row} from d t
                    returning {leased_job};
{end}
{end}
                else
                    base := {next_base};
{segments drawn 1024}
{leaf of lease}
                    return query
                    with d as ({drawn}, t.seq - pos as i), {as_one}
                    select {job}, base + 2 * t.i, until from d t;
{end}
{end}
                end if;
                get diagnostics got = row_count;
                n := n - got;
                exit when n <= 0;
                empty := empty + (got = 0)::int;
                exit when empty > 2;
            end loop;
        end if;
    end if;
    if path is not null then
{segments path}
{leaf of lease}
        return query
        with d as (
            delete from {segment} t where t.ctid = any (array(
                select t.ctid from {segment} t
                 where t.group_key = '' and t.priority = 0 and t.seq > (select pg_sequence_last_value({next})) and t.key is null
                 order by t.seq limit n for update skip locked))
            returning t.*)
        insert into {leaf} as l (slot, {lease_columns})
        select leaf, {lease_row} from d t order by t.seq
        returning {leased_job};
{end}
{end}
    elsif n = 0 then
        null; -- all that was asked for
    elsif flags & ({keyed} | {watched}) = 0 then
        if pg_current_xact_id_if_assigned() is not null then
            came := null; -- jobs that this transaction took may come back, and it does not see them
        elsif came is not null then -- from a backlog few go by the skip map, each over all that was taken since it was made
            due := pg_sequence_last_value({fast_path}) % 4096 < 2048 or random() < 0.05;
        end if;
        base := case when acks is not null and n between 8 and 255 and flags = {plain} then {next_base} end;
        if base is null then
{leaf of lease}
            return query
            insert into {leaf} as l (slot, {lease_columns})
            select leaf, {lease_row} from {take_rows}(n, in_group, due) t
            returning {leased_job};
{end}
        else
{leaf of lease}
            return query
            with d as materialized (select t.*, row_number() over () as i from {take_rows}(n, in_group, due) t), {as_one}
            select {job}, base + 2 * t.i, until from d t;
{end}
        end if;
        get diagnostics got = row_count;
        if came is not null and got > 0 and got < n then
            perform setval({next}, greatest(came - 64, 0)), setval({fast_path}, {now} * 4096 + 2048 + pg_sequence_last_value({ring}) % 1024);
        end if;
    else
        if flags & {watched} <> 0 then
            most := (select case when q.paused then 0 else q.max_running end from {schema}._queue q where q.id = {id});
        end if;
        if most > 0 then -- one claim at a time, and it counts
            if not pg_try_advisory_xact_lock({lease_table}::oid::int, {id}) then
                most := 0;
            end if;
            foreach leaf in array {listed lease} loop
{leaf of lease}
                select coalesce(sum(coalesce(256 - bit_count(l.done), 1)), 0) into got from {leaf} l where l.queue = {id};
{end}
                most := most - got;
            end loop;
        end if;
        n := least(n, most);
        if n > 0 then
            return query
            insert into {schema}._lease as l ({lease_columns})
            select {lease_row} from {take_keyed}(n, in_group, true) t
            returning {leased_job};
        end if;
    end if;
    if acks <> '{}' then
        due := acks[1] & 1 = 0 {if kept}and cardinality(acks) = 1 {end if}and (path is not null or drawn is not null and n = 0);
        if due and cardinality(acks) > 1 then -- where {ack} would lock them in this order
            due := pg_sequence_last_value({lease_slot}) < 2 and (select bit_or(a) & 1 = 0 from unnest(acks) a);
        end if;
        if due then
{leaf of lease}
            return query
            {with l}delete from {leaf} l where l.lease = any (acks) and l.queue + 0 = {id} and l.jobs is null
            {returning} null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, l.lease, null::timestamptz{from l};
{end}
            get diagnostics got = row_count;
            if got = cardinality(acks) then
                acks := null;
            end if;
        elsif acks[1] & 1 = 1 and acks[cardinality(acks)] - acks[1] = 2 * cardinality(acks) - 2 then
{leaf of lease}
            return query
            {whole of acks} select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, unnest(acks), null::timestamptz from l;
{end}
            if found then
                acks := null;
            end if;
        end if;
        if acks is not null then
            return query select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, a, null::timestamptz
                           from {ack}(acks) a;
        end if;
    end if;
    {maintain_if_due, leasing}
end $fn$;

-- {ack} ends jobs and returns the leases that were held. queue + 0 keeps the planner
-- from the indexes that begin with the queue: a lease is found by its number. Where the ring has turned
-- since it was asked what is listed, a lease may have moved to where nobody looked. Whoever locks several leases does it
-- in one order: by segment as listed, in each the rows of several by number, and then the others.
create or replace function {ack}(in_leases bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    todo int := cardinality(in_leases);
    turn bigint;
    got  int;
    held bigint[];
    keys text[];
    leaf int := pg_sequence_last_value({lease_slot}) % 2;
    odd  boolean := in_leases[1] & 1 = 1; -- mostly of a claim of several
begin
    if todo = 1 and not odd and pg_sequence_last_value({flags}) & {keyed} = 0 then -- few expressions, see dequeue_NAME
{leaf of lease}
        return query {with l}delete from {leaf} l where l.lease = any (in_leases) and l.queue + 0 = {id} and l.jobs is null {returning} l.lease{from l};
{end}
        if found then
            return;
        end if;
    elsif odd is not true and todo > 1 then
        odd := (select bool_or(a & 1 = 1) from unnest(in_leases) a);
    elsif odd and in_leases[todo] - in_leases[1] = 2 * todo - 2 then
        foreach leaf in array {listed lease} loop
{leaf of lease}
            return query {whole of in_leases} select unnest(in_leases) from l;
{end}
            if found then
                return;
            end if;
        end loop;
    end if;
    loop
        turn := pg_sequence_last_value({lease_slot});
        foreach leaf in array {listed lease} loop
            if odd then
{leaf of lease}
                return query
                with m as materialized (
                    select a & -511 as lease, bit_or(set_bit({nobody}, (a >> 1 & 255)::int, 1)) as places from unnest(in_leases) a where a & 1 = 1 group by 1 order by 1),
                o as materialized (
                    select l.lease, l.done{if kept}, l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.jobs{end if}, m.places & ~l.done as ended
                      from m cross join lateral (select * from {leaf} l where l.lease = m.lease and l.queue + 0 = {id} and l.jobs is not null for update) l),
                whole as (
                    delete from {leaf} l where l.lease = any (array(select o.lease from o where o.done | o.ended = ~{nobody}))),
                part as (
                    update {leaf} l set done = l.done | o.ended from o -- not by =, for which the table might be joined as a whole
                     where l.lease >= o.lease and l.lease <= o.lease and o.done | o.ended <> ~{nobody} and o.ended <> {nobody}){if kept},
                kept as (
                    {done} select {done row}, d.* from o l cross join lateral (
                        {done jobs} from unnest(l.jobs) j where get_bit(l.ended, (j.lease >> 1 & 255)::int) = 1) d
                     where l.ended <> {nobody}){end if}
                select o.lease + 2 * i from o cross join generate_series(1, 255) i where get_bit(o.ended, i) = 1;
{end}
                get diagnostics got = row_count;
                todo := todo - got;
                exit when todo <= 0;
            end if;
            if pg_sequence_last_value({flags}) & {keyed} = 0 {if kept}and todo = 1 {end if}then
{leaf of lease}
                return query {with l}delete from {leaf} l where l.lease = any (in_leases) and l.queue + 0 = {id} and l.jobs is null {returning} l.lease{from l};
{end}
                get diagnostics got = row_count;
            else
{leaf of lease}
                with d as (delete from {leaf} l where l.lease = any (in_leases) and l.queue + 0 = {id} and l.jobs is null returning {if kept}l.*{end if}{if not kept}l.lease, l.key{end if}){if kept},
                kept as ({done several}){end if}
                select array_agg(d.lease), array_agg(distinct d.key) filter (where d.key is not null), count(*) into held, keys, got from d;
{end}
                if keys is not null then
                    perform {schema}._promote({id}, keys);
                end if;
                return query select unnest(held);
            end if;
            todo := todo - got;
            exit when todo <= 0;
        end loop;
        exit when todo <= 0 or turn = pg_sequence_last_value({lease_slot});
    end loop;
    if todo > 0 then
        perform {schema}._not_moved({id}, in_leases);
    end if;
end $fn$;

$$, '{as_one}', $one$-- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::{schema}._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into {leaf} (slot, queue, lease, lease_until, {if kept}claimed_at, {end if}worker, priority, group_key, done, jobs)
                            select leaf, {id}, base, until, {if kept}until - lease, {end if} coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then {first a.n} else ~(select bit_or(set_bit({nobody}, x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into {leaf} (slot, lease, {lease_columns})
                            select leaf, base + 2 * t.i, {lease_row} from d t where (select a.apart from alike a))$one$),
    $re$\{whole of (\w+)\}$re$, $one$-- all of a claim, as it came; mostly that row is still as it was written
                with l as (
                    delete from {leaf} l
                     where l.lease = \1[1] - 2 and l.queue + 0 = {id} and l.done = ~((~{nobody}) << 256 - cardinality(\1) >> 1)
                       and \1 = array(select generate_series(\1[1], \1[cardinality(\1)], 2))
                    returning {if kept}l.*{end if}{if not kept}1{end if}){if kept},
                kept as ({done} select {done row}, d.* from l cross join lateral ({done jobs} from unnest(l.jobs) j) d){end if}$one$, 'g'),
    '{first a.n}', '~((~{nobody}) << 256 - a.n::int >> 1)') $function$;

-- _not_moved raises an error where a transaction that keeps its snapshot has missed leases that were carried over since: from a
-- segment that nobody looks into any more, or that was truncated, to one in which the snapshot does not show them. That is told
-- by the catalogue as the snapshot shows it, and as it is.
CREATE OR REPLACE FUNCTION penstock._not_moved(queue integer, leases bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$
begin
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
end $function$;

-- _extend makes leases end by from now, and returns those that were held. The row of a claim of several ends later as a whole if
-- all that is left of it is named.
CREATE OR REPLACE FUNCTION penstock._extend(queue integer, leases bigint[], by interval)
 RETURNS TABLE(lease bigint, until timestamp with time zone)
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if (by > interval '0' and by <= interval '1000 years') is not true then
        raise exception 'the lease is %, expected more than nothing and at most 1000 years', coalesce(by::text, 'null')
        using errcode = '22023', hint = 'it is counted from now, for example interval ''30 s''';
    end if;
    return query select * from _change_leases(queue, leases, by, null,
        'update _lease_%s l set lease_until = clock_timestamp() + $3 where l.lease = any ($1) and l.queue + 0 = $2 and l.jobs is null returning l.lease, l.lease_until, null::text',
        case when (select bool_or(l & 1 = 1) from unnest(leases) l) then $sql$
            with m as materialized (
                select a & -511 as lease, bit_or(set_bit(repeat('0', 256)::bit(256), (a >> 1 & 255)::int, 1)) as places from unnest($1) a where a & 1 = 1 group by 1 order by 1),
            o as materialized ( -- others are parted, which locks them in between
                select l.lease, l.done | m.places as named
                  from m cross join lateral (select * from _lease_%1$s l where l.lease = m.lease and l.queue + 0 = $2 and l.jobs is not null for update) l),
            u as (
                update _lease_%1$s l set lease_until = clock_timestamp() + $3
                 where l.lease = any (array(select o.lease from o where o.named = ~repeat('0', 256)::bit(256)))
                returning l.*)
            select u.lease + 2 * i, u.lease_until from u cross join generate_series(1, 255) i where get_bit(u.done, i) = 0$sql$ end);
end $function$;

-- _report notes what a job that runs says of itself, and returns when its lease ends, null if it is lost.
CREATE OR REPLACE FUNCTION penstock._report(queue integer, lease bigint, report jsonb)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if octet_length(report::text) > 65536 then
        raise exception 'the report has % bytes, the limit is 65536', octet_length(report::text) using errcode = '23514', hint = 'store it elsewhere and report a reference';
    end if;
    return (select c.until from _change_leases(queue, array[lease], null, report,
        'update _lease_%s l set report = $4 where l.lease = any ($1) and l.queue + 0 = $2 and l.jobs is null returning l.lease, l.lease_until, null::text') c);
end $function$;

-- _release gives jobs back as if they had not been claimed: the attempt does not count. By its id a job keeps its place among
-- those of its key. It returns the leases that were held.
CREATE OR REPLACE FUNCTION penstock._release(queue integer, leases bigint[], after interval)
 RETURNS SETOF bigint
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    perform _refuse_pause(after);
    return query select c.lease from _change_leases(queue, leases, after, null, format($sql$
        with d as (delete from _lease_%%s l where l.lease = any ($1) and l.queue + 0 = $2 and l.jobs is null returning l.*),
        back as (
            insert into %s attempt, id, created_at, priority, group_key, key, headers, payload, failures)
            select %s, d.id, d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d order by d.id)
        select d.lease, d.lease_until, d.key from d$sql$,
        case when after > interval '0' then '_scheduled (due, queue,' else (select replace(_q(q.name), '%', '%%') from _queue q where q.id = queue) || ' (' end,
        -- -1, too, is none, but of a job that has begun: those of its key wait, see {busy}
        case when after > interval '0' then 'clock_timestamp() + $3, $2, case when d.attempt = 1 then -1 else d.attempt - 1 end' else 'd.attempt - 1' end)) c;
end $function$;

-- _refuse_pause raises an error for a time that is too long to wait.
CREATE OR REPLACE FUNCTION penstock._refuse_pause(after interval)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if after > interval '1000 years' then
        raise exception 'the job is to be tried again after %, expected at most 1000 years', after
        using errcode = '22023', hint = 'dead-letter the job if it is not to run again';
    end if;
end $function$;

-- _change_leases does one thing with the leases that are held, segment by segment, and returns them with their end. In its
-- statements %s is a segment's number: of_one is for rows of one job, of_all for rows of several of which all that is left is
-- named. Other rows of several are parted before of_one. A statement returns the lease, its end, and a key whose next job may be
-- ready then. Rows are locked in ack's order, and as it does this looks again where the ring has turned meanwhile.
CREATE OR REPLACE FUNCTION penstock._change_leases(queue integer, leases bigint[], by interval, report jsonb, of_one text, of_all text DEFAULT NULL::text)
 RETURNS TABLE(lease bigint, until timestamp with time zone)
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    held bigint[] := '{}';
    keys text[] := '{}';
    k    text;
    turn bigint;
    leaf int;
begin
    loop
        turn := pg_sequence_last_value('_lease_slot');
        foreach leaf in array _listed('_lease_slot') loop
            if of_all is not null then
                for lease, until in execute format(of_all, leaf) using leases, queue, by loop
                    held := held || lease;
                    return next;
                end loop;
            end if;
            -- What is in this segment only: whoever holds several leases locks them in {ack}'s order. What is parted goes to the last one listed.
            perform _part(queue, array(select unnest(leases) except select unnest(held)), leaf);
            for lease, until, k in execute format(of_one, leaf) using leases, queue, by, report loop
                held := held || lease;
                keys := keys || k;
                return next;
            end loop;
        end loop;
        leases := array(select unnest(leases) except select unnest(held));
        exit when leases = '{}' or turn = pg_sequence_last_value('_lease_slot');
    end loop;
    keys := array(select distinct x from unnest(keys) x where x is not null);
    if keys <> '{}' then -- a job with a smaller id may have come meanwhile, and waits for these
        perform _promote(queue, keys);
    end if;
    if leases <> '{}' then
        perform _not_moved(queue, leases);
    end if;
end $function$;

-- _part gives each job that is left of a claim of several a row of its own, if it is in one with one of these leases, and in that
-- segment if one is named.
CREATE OR REPLACE FUNCTION penstock._part(queue integer, leases bigint[], segment integer DEFAULT NULL::integer)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    turn bigint;
    leaf int;
begin
    leases := array(select l from unnest(leases) l where l & 1 = 1);
    while leases <> '{}' and turn is distinct from pg_sequence_last_value('_lease_slot') loop
        turn := pg_sequence_last_value('_lease_slot');
        foreach leaf in array case when segment is null then _listed('_lease_slot') else array[segment] end loop
            execute format($sql$
                with m as materialized (
                    select a & -511 as lease, bit_or(set_bit(repeat('0', 256)::bit(256), (a >> 1 & 255)::int, 1)) as places from unnest($1) a group by 1 order by 1),
                d as (
                    delete from _lease_%s l using m -- not by =, see {ack}
                     where l.lease >= m.lease and l.lease <= m.lease and l.queue + 0 = $2 and l.jobs is not null
                       and m.places & ~l.done <> repeat('0', 256)::bit(256)
                    returning l.*)
                insert into _lease (lease, queue, attempt, lease_until, claimed_at, id, created_at, priority, worker, group_key, headers, payload, failures)
                select j.lease, d.queue, j.attempt, d.lease_until, d.claimed_at, j.id, j.created_at, d.priority, d.worker, d.group_key, j.headers, j.payload, j.failures
                  from d cross join lateral unnest(d.jobs) j where get_bit(d.done, (j.lease >> 1 & 255)::int) = 0$sql$, leaf) using leases, queue;
        end loop;
    end loop;
end $function$;

-- _fail ends an attempt that failed: the job is to run again when it is due, or is dead if final or the attempts are used up. It
-- returns when it is due, null if it is dead.
CREATE OR REPLACE FUNCTION penstock._fail(queue integer, lease bigint, after interval, error text, final boolean)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    q    _queue := (select q from _queue q where q.id = queue);
    l    _lease;
    turn bigint;
    leaf int;
    due  timestamptz;
begin
    perform _refuse_pause(after), _part(queue, array[lease]);
    loop
        turn := pg_sequence_last_value('_lease_slot');
        foreach leaf in array _listed('_lease_slot') loop
            execute format('delete from _lease_%s x where x.lease = $1 and x.queue + 0 = $2 and x.jobs is null returning *', leaf) into l using lease, q.id;
            exit when l.lease is not null;
        end loop;
        exit when l.lease is not null or turn = pg_sequence_last_value('_lease_slot');
    end loop;
    if l.lease is null then
        perform _not_moved(q.id, array[lease]), _lost(lease);
    end if;
    l.failures := _failed(l.failures, l.attempt, error);
    if final or l.attempt >= q.max_attempts then
        insert into _dead_job (queue, id, attempt, created_at, priority, group_key, key, headers, payload, failures)
        values (q.id, l.id, l.attempt, l.created_at, l.priority, l.group_key, l.key, l.headers, l.payload, l.failures);
        if l.key is not null then
            perform _promote(q.id, array[l.key]);
        end if;
        return null;
    end if;
    after := coalesce(after, least(3600, 2 ^ least(l.attempt, 12)) * (0.8 + 0.4 * random()) * interval '1 s');
    due := clock_timestamp() + after;
    if after <= interval '0' then
        execute format('insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                        values ($1.id, $1.attempt, $1.created_at, $1.priority, $1.group_key, $1.key, $1.headers, $1.payload, $1.failures)', _q(q.name)) using l;
    else
        insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload, failures)
        values (l.id, q.id, l.attempt, due, l.created_at, l.priority, l.group_key, l.key, l.headers, l.payload, l.failures);
    end if;
    if l.key is not null then -- a job with a smaller id may have come meanwhile, and waits for this one
        perform _promote(q.id, array[l.key]);
    end if;
    return due;
end $function$;

-- _key_functions is the text of what minds keys.
CREATE OR REPLACE FUNCTION penstock._key_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {busy} says whether a job of a key must wait: one of the key runs, or one with a smaller id
-- is still to run, of which those that are only delayed are none. It looks where jobs come from
-- before it looks where they go to, so it sees one that moves meanwhile.
create or replace function {busy}(in_key text, in_id bigint, slots smallint[]) returns boolean
language plpgsql volatile as $fn$
declare
    here smallint;
    leaf int;
    yes  boolean;
begin
    foreach leaf in array {listed lease} loop
{leaf of lease}
        yes := exists (select from {leaf} l where l.queue = {id} and l.key = in_key);
{end}
        if yes then
            return true;
        end if;
    end loop;
    foreach leaf in array {listed scheduled} loop
{leaf of scheduled}
        yes := exists (select from {leaf} l where l.queue = {id} and l.key = in_key and l.id < in_id and (l.attempt <> 0 or l.due = 'infinity'));
{end}
        if yes then
            return true;
        end if;
    end loop;
    for i {older_first} loop
        exit when yes;
        here := slots[i];
{segments here}
        yes := exists (select from {segment} r where r.key = in_key and r.id < in_id)
            or exists (select from {segment} r where r.key = in_key and r.id is null and r.seq < in_id);
{end}
    end loop;
    return yes;
end $fn$;

-- {take_keyed} is {take} where jobs have keys. Whoever runs a job of a key holds the
-- key's lock until his transaction ends, and has a lease from then on; so a statement
-- that begins with the lock held sees whether one runs, and whether one with a smaller
-- id is still to run. Jobs that must wait are moved to _scheduled, at the cost of one move each.
--
-- Of a priority it reads a thousand jobs from the first one on, and then four thousand from a place that it draws, and
-- on from the first thousand behind the last. So it comes to each that waits, also where all that it writes is rolled back.
create or replace function {take_keyed}(n int, in_group text, leasing boolean) returns setof {queue}
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags  constant bigint := pg_sequence_last_value({flags});
    bound  constant bigint := case when pg_current_xact_id_if_assigned() is null then coalesce(pg_sequence_last_value({seq}), 0) end; -- of the skip maps of all priorities
    m      {schema}._skip_map;
    here   smallint;
    pos    bigint;
    before bigint;
    upto   bigint;
    list   smallint[];  -- the segments it goes through
    at     int;         -- which of them
    begun  int;         -- in which of them the first thousand end
    near   bigint;      -- where they end, null before
    edge   bigint;      -- behind it there are few
    drawn  bigint;      -- where it goes on, between the two
    first  boolean;     -- in the segment begun
    mark   int;         -- what seen was then
    most   int;         -- jobs to read at once
    seen   int;         -- jobs that were read; a key that must wait counts as four more
    todo   int := n;
    got    int;
    locked int := 0;    -- keys
    moved  int := 0;    -- jobs moved to _scheduled
    had    int;
    skip   text[] := '{}';
    ctids  tid[];
    seqs   bigint[];
    ids    bigint[];
    keys   text[];
    chosen bigint[];
    run    bigint[];
    busy   text[];
    last   int;
begin
    if flags & {watched} <> 0 and not leasing and (select q.max_running is not null from {schema}._queue q where q.id = {id}) then
        raise exception 'the queue limits how many jobs run, which dequeue cannot count'
        using errcode = '0A000', hint = 'use claim, or lift the limit: select set_queue(name, max_running => 0)';
    end if;
    for p in -16 .. 15 loop
        continue when flags & (1::bigint << (16 + p)) = 0;
        m := {schema}._newest_skip_map({id}, in_group, p::smallint);
        if m.n is null or m.turn < 0 or random() * 64 < n
           or m.pending <> '{}' and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot()) or x >= pg_snapshot_xmax(pg_current_snapshot())) then
            m := {skip_map}(in_group, p::smallint, bound);
        end if;
        if m.turn <> pg_sequence_last_value({ring}) then
            m.slots := {slots};
        end if;
        list := m.slots;
        at := 1;
        pos := {start};
        near := null;
        most := greatest(64, least(n, 1000));
        seen := -n;
        had := moved;
        while todo > 0 and seen < 5000 loop
            exit when at > cardinality(list) and (near is null or drawn = near);
            if at > cardinality(list) or near is null and seen >= 1000 then
                if near is null then
                    begun := at;
                    near := pos;
                    edge := case when {lifo} then m.lo[cardinality(m.lo)] - 1 else least(m.hi[cardinality(m.hi)], pg_sequence_last_value({seq})) end;
                elsif seen >= mark + 64 then
                    edge := near;
                elsif first then -- few are behind it, or none
                    edge := drawn;
                end if;
                mark := seen;
                -- Among the seqs, or the segments: jobs that were carried over are in a later one than those behind them.
                at := begun;
                drawn := near;
                if edge {beyond} near then
                    if random() < 0.5 then
                        at := begun + trunc(random() * (cardinality(list) - begun + 1))::int;
                    end if;
                    first := at = begun;
                    pos := case when first then near when {lifo} then pg_sequence_last_value({seq}) + 1 else m.lo[1] - 1 end;
                    drawn := pos + trunc(random() * (edge - pos))::bigint;
                end if;
                pos := drawn;
            end if;
            here := list[at];
{segments here}
            select array_agg(v.ctid) filter (where v.free), array_agg(v.seq) filter (where v.free), array_agg(v.id) filter (where v.free), array_agg(v.key) filter (where v.free),
                   count(*), case when {lifo} then max(v.seq) + 1 else min(v.seq) - 1 end, case when {lifo} then min(v.seq) else max(v.seq) end
              into ctids, seqs, ids, keys, got, before, upto
              from (select v.*, (v.key <> all (skip)) is not false as free from unnest(m.lo, m.hi) i(lo, hi) cross join lateral (
                        select t.ctid, t.seq, coalesce(t.id, t.seq) as id, t.key from {segment} t
                         where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.seq {beyond} pos
                         order by t.seq {dir} limit most) v
                     limit most) v;
{end}
            if got = 0 then
                at := at + 1;
                pos := {start};
                continue;
            end if;
            seen := seen + got;
            pos := upto;
            chosen := null;
            if seqs is not null then
                select array_agg(c.i), array_agg(distinct c.key) filter (where c.key is not null) into chosen, busy
                  from (select c.* from (select k.key, k.i, ids[k.i] as id from unnest(keys) with ordinality k(key, i) offset 0) c
                         where case when c.key is null then true
                                    when locked >= 500 then false
                                    when not leasing and {busy}(c.key, c.id, m.slots) then false
                                    else pg_try_advisory_xact_lock(hashtextextended(c.key, {id})) end
                         limit todo) c;
                last := cardinality(keys);
                if cardinality(chosen) = todo then
                    last := chosen[todo];
                    pos := seqs[last];
                end if;
                locked := locked + coalesce(cardinality(busy), 0);
                seen := seen - 4 * cardinality(skip);
                skip := skip || array(select distinct c.key from unnest(keys) with ordinality c(key, i)
                                       where c.i <= last and c.key is not null and (chosen is null or c.i <> all (chosen)));
                seen := seen + 4 * cardinality(skip);
            end if;
            if chosen is null then
                most := least(2 * most, 500);
                continue;
            end if;
            run := chosen;
            if busy is not null then -- a new statement: it sees what ended before the locks were had
                if m.turn <> pg_sequence_last_value({ring}) then
                    m.turn := pg_sequence_last_value({ring});
                    m.slots := {slots};
                end if;
                select array_agg(c.i order by c.i) into run
                  from (select i, ids[i] as id, keys[i] as key from unnest(chosen) i) c
                 where c.key is null or not {busy}(c.key, c.id, m.slots);
                -- Of a key that runs now the others stay where they are; of one that
                -- cannot, they are moved, by a claim: a dequeue may be part of a
                -- long transaction, and should lock no key in vain. One before the one that
                -- was looked at stays: it may be what they wait for, and is looked at next.
                busy := array(select unnest(busy) except select keys[i] from unnest(run) i);
                skip := skip || array(select distinct keys[i] from unnest(run) i where keys[i] is not null);
                if busy <> '{}' and leasing then
{segments here}
                    with d as (
                        delete from {segment} t
                         where t.ctid = any (array(
                            select ctids[c.i] from (select *, min(ids[i]) over (partition by key) as lowest from unnest(keys) with ordinality u(key, i) where key = any (busy)) c
                             where ids[c.i] <> c.lowest or c.i = any (chosen)))
                           and t.seq = any (seqs) and t.key = any (busy)
                        returning t.*)
                    insert into {schema}._scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload, failures)
                    select coalesce(d.id, d.seq), {id}, d.attempt, 'infinity', d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d;
{end}
                    get diagnostics got = row_count;
                    moved := moved + got;
                    most := case when 2 * got >= most then least(2 * most, 500) else greatest(most / 2, least(todo, 500), 8) end;
                    if moved > 1000 then
                        skip := skip || busy; -- the next call goes on with it
                    elsif got > 0 then
                        pos := before;
                    end if;
                else
                    skip := skip || busy;
                end if;
            end if;
            if run is not null then
{segments here}
                return query
                with d as (
                    delete from {segment} t
                     where t.ctid = any (array(
                        select t.ctid from {segment} t
                         where t.ctid = any (array(select ctids[i] from unnest(run) i)) and t.seq = any (seqs)
                           for update skip locked))
                    returning t.*)
                select * from d order by d.seq {dir};
{end}
                get diagnostics got = row_count;
                todo := todo - got;
                if not leasing and busy is not null then
                    perform {schema}._promote({id}, array(select distinct keys[i] from unnest(run) i where keys[i] is not null));
                end if;
            end if;
        end loop;
        if moved - had >= 64 then -- much is gone: the next call makes a skip map, which turn says
            insert into {schema}._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
            values ({id}, m.base, m.seen, m.xid, -1, p, in_group, m.lo, m.hi, m.pending, list);
        end if;
        exit when todo <= 0;
    end loop;
end $fn$;

$$ $function$;

-- _promote makes the next job of each key ready, if it only waits for its key. A key that somebody has locked, who may be putting
-- off jobs of it that are not to be seen yet, it leaves to the maintenance, which is due at once then: in _scheduled a row of the
-- queue's number below zero says which to look at, until somebody could. So it does where a kept snapshot may hide jobs.
CREATE OR REPLACE FUNCTION penstock._promote(queue integer, keys text[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    k     text;
    head  bigint;
    other bigint;
    q     _queue;
    busy  boolean;
    leaf  int;
    locked boolean;
begin
    foreach k in array keys loop
        locked := pg_try_advisory_xact_lock(hashtextextended(k, queue));
        if not locked or current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
            insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, payload)
            values (hashtextextended(k, queue), -queue, 0, clock_timestamp(), clock_timestamp(), 0, '', k, '');
            perform setval(t.done, greatest(pg_sequence_last_value(t.done) - 250, 0))
               from (select _q(format('_%s.maintained', x.name))::regclass as done from _queue x where x.id = queue) t;
        end if;
        if locked then
            head := null;
            foreach leaf in array _listed('_scheduled_slot') loop -- one that is only delayed has no place in its key yet
                if leaf = 0 then
                    select l.id into other from _scheduled_0 l where l.queue = _promote.queue and l.key = k and (l.attempt <> 0 or l.due = 'infinity') order by l.id limit 1;
                else
                    select l.id into other from _scheduled_1 l where l.queue = _promote.queue and l.key = k and (l.attempt <> 0 or l.due = 'infinity') order by l.id limit 1;
                end if;
                head := least(head, other);
            end loop;
            continue when head is null;
            select * into q from _queue x where x.id = queue;
            execute format('select %s($1, $2, $3)', _q(format('_%s.busy', q.name))) into busy
              using k, head, _listed_slots(queue, q.lifo, _q(format('_%s.ring', q.name))::regclass);
            continue when busy;
            foreach leaf in array _listed('_scheduled_slot') loop
                execute format($sql$
                    with w as (delete from _scheduled_%s l where l.queue = $1 and l.key = $2 and l.id = $3 and l.due = 'infinity' returning l.*)
                    insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                    select w.id, w.attempt, w.created_at, w.priority, w.group_key, w.key, w.headers, w.payload, w.failures from w$sql$, leaf, _q(q.name))
                  using queue, k, head;
            end loop;
        end if;
    end loop;
end $function$;

-- _maintain does what time demands. One process does it at a time; the register holds when it was at work last, in ms. since is a
-- little before: what ended earlier has been moved, except for what committed late, so every few seconds it looks at all. It runs
-- within somebody's claim, whose lease runs meanwhile. So each step moves what is due and reads no more than that: what waits
-- costs nothing. A step moves 10,000 jobs at most, and begins no other 500 after 200 ms. Mostly there is nothing to do, and one
-- statement says so: those that would do it cost ten times as much, with nothing in them.
CREATE OR REPLACE FUNCTION penstock._maintain(queue integer, first boolean DEFAULT false)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    q      constant _queue := (select q from _queue q where q.id = queue);
    done   constant regclass := _q(format('_%s.maintained', q.name));
    last   constant bigint := pg_sequence_last_value(done);
    flags  constant bigint := pg_sequence_last_value(_q(format('_%s.flags', q.name))::regclass);
    upto   constant timestamptz := clock_timestamp(); -- a variable, because a volatile function is no bound of an index scan
    now_ms constant bigint := date_part('epoch'::text, upto) * '1000';
    since  constant timestamptz := case when now_ms / 5000 = last / 5000 then to_timestamp(last::float8 / '1000') - interval '2 s' else '-infinity' end;
    s      _schedule;
    more   boolean := false;
begin
    if not first and now_ms - last between 0 and 249 then
        return; -- another transaction that found it due was faster
    end if;
    if not pg_try_advisory_xact_lock('_queue'::regclass::oid::int, queue) and abs(now_ms - last) < 1000 then
        return; -- else it may be a long transaction that did; nothing here needs the lock
    end if;
    if first then -- in its transaction
        perform _refresh(q);
    end if;
    perform setval(done, now_ms);
    if (q.paused or q.max_running is not null) <> (flags & 25769803776 <> 0) and current_setting('transaction_isolation') = 'read committed' then -- watched, see _queue_flags
        perform _watch(queue, true);
    end if;

    -- A statement opens all that it names, with its indexes: for what is empty none is made.
    if pg_relation_size('_lease_0') > 0 or pg_relation_size('_lease_1') > 0 then
        if exists (select from _lease l where l.queue = _maintain.queue and l.lease_until > since and l.lease_until <= upto) then
            more := _expire(q, since, upto);
            perform setval(done, (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint);
        end if;
    end if;
    if pg_relation_size('_scheduled_0') > 0 or pg_relation_size('_scheduled_1') > 0 then
        if exists (select from _scheduled l where l.queue = _maintain.queue and l.due > since and l.due <= upto) then
            more := _wake(q, since, upto) or more;
            perform setval(done, (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint);
        end if;
        if exists (select from _scheduled l where l.queue = -_maintain.queue and l.due > since and l.due <= upto) then
            more := _look_at_keys(q, since, upto) or more;
            perform setval(done, (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint);
        end if;
    end if;
    if last - now_ms > 10800000 then -- as cron does: a clock that is set back further than that was wrong before
        perform _next_run(x.queue, x.name) from _schedule x where x.queue = _maintain.queue;
    end if;
    if pg_relation_size('_schedule') > 0 then -- whose dedup_key a transaction has that has not ended comes with a later call
        for s in select * from _schedule x where x.queue = _maintain.queue and x.next <= upto for update skip locked loop
            continue when s.dedup_key is not null and not _hold_keys(queue, array[s.dedup_key], false);
            perform enqueue_bytes(q.name, s.payload, s.key, s.group_key, s.priority, null, s.dedup_key, s.headers);
            update _schedule x set next = _cron_next(s.cron, upto) where x.queue = _maintain.queue and x.name = s.name; -- upto: the clock may be set back meanwhile
        end loop;
    end if;

    if now_ms / 1000 <> last / 1000 and (first or now_ms - last between 0 and 2000 or random() < '0.25') then -- one call now and then need not pay for it each time
        begin
            perform _maintain_storage(q);
        exception when others then -- leases and due jobs do not wait until that is mended
            raise warning 'the maintenance of the storage of queue % failed: %', q.name, sqlerrm using errcode = sqlstate;
        end;
    end if;
    perform setval(done, case when more then 0 else (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint end); -- 0: the next one looks at all, at once
end $function$;

-- _expire moves the jobs whose lease has ended, and says whether there may be more.
CREATE OR REPLACE FUNCTION penstock._expire(queue penstock._queue, since timestamp with time zone, upto timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    got  int;
    keys text[];
begin
    for round in 1 .. 20 loop
        execute format($sql$
            with x as materialized (
                select x.lease, x.lease_until, coalesce(256 - bit_count(x.done), 1) as jobs from _lease x
                 where x.queue = $1 and x.lease_until > $2 and x.lease_until <= $3
                 order by x.lease_until limit 500 for update skip locked),
            e as (
                delete from _lease l
                 where l.queue + 0 = $1 and l.lease = any (array( -- as many rows as make 500 jobs
                    select y.lease from (select x.*, sum(x.jobs) over (order by x.lease_until, x.lease) as upto from x) y where y.upto - y.jobs < 500))
                returning l.*),
            noted as materialized (
                select coalesce(j.id, e.id) as id, coalesce(j.attempt, e.attempt) as attempt, coalesce(j.created_at, e.created_at) as created_at, e.priority, e.group_key, e.key,
                       coalesce(j.headers, e.headers) as headers, coalesce(j.payload, e.payload) as payload,
                       _failed(coalesce(j.failures, e.failures), coalesce(j.attempt, e.attempt), 'lease expired' || case e.worker when '' then '' else ', held by ' || e.worker end) as history
                  from e left join lateral (select j.* from unnest(e.jobs) j where get_bit(e.done, (j.lease >> 1 & 255)::int) = 0) j on true),
            again as (
                insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select f.id, f.attempt, f.created_at, f.priority, f.group_key, f.key, f.headers, f.payload, f.history from noted f where f.attempt < $4),
            dead as (
                insert into _dead_job (queue, id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select $1, f.id, f.attempt, f.created_at, f.priority, f.group_key, f.key, f.headers, f.payload, f.history from noted f where f.attempt >= $4)
            select count(*), array_agg(distinct f.key) filter (where f.key is not null) from noted f$sql$, _q(queue.name))
           into got, keys using queue.id, since, upto, queue.max_attempts;
        if keys is not null then
            perform _promote(queue.id, keys);
        end if;
        if got < 500 then
            return false;
        end if;
        exit when clock_timestamp() > upto + interval '200 ms';
    end loop;
    return true;
end $function$;

-- _wake moves the jobs that have become due to the ring, and says whether there may be more.
CREATE OR REPLACE FUNCTION penstock._wake(queue penstock._queue, since timestamp with time zone, upto timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    ids  bigint[];
    dues timestamptz[];
begin
    for round in 1 .. 20 loop
        select array_agg(x.id), array_agg(x.due) into ids, dues
          from (select l.id, l.due from _scheduled l
                 where l.queue = (_wake.queue).id and l.due > since and l.due <= upto
                 order by l.due limit 500 for update skip locked) x;
        if ids is null then
            return false;
        end if;
        execute format($sql$
            with d as (
                delete from _scheduled l using unnest($2, $3) u(id, due)
                 where l.queue = $1 and l.due = u.due and l.id = u.id
                returning l.*)
            insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
            select d.id, greatest(d.attempt, 0), d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d order by d.due, d.id$sql$, _q(queue.name))
          using queue.id, ids, dues;
        if cardinality(ids) < 500 then
            return false;
        end if;
        exit when clock_timestamp() > upto + interval '200 ms';
    end loop;
    return true;
end $function$;

-- _look_at_keys promotes the keys that _promote has left to it, and says whether there may be more.
CREATE OR REPLACE FUNCTION penstock._look_at_keys(queue penstock._queue, since timestamp with time zone, upto timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    ids  bigint[];
    dues timestamptz[];
    keys text[];
begin
    select array_agg(x.id), array_agg(x.due), array_agg(distinct x.key) into ids, dues, keys
      from (select l.id, l.due, l.key from _scheduled l
             where l.queue = -(_look_at_keys.queue).id and l.due > since and l.due <= upto
             order by l.due limit 200 for update skip locked) x;
    if ids is null then
        return false;
    end if;
    delete from _scheduled l using unnest(ids, dues) u(id, due) where l.queue = -(_look_at_keys.queue).id and l.due = u.due and l.id = u.id;
    perform _promote(queue.id, keys);
    return cardinality(ids) = 200;
end $function$;

-- _refresh makes the skip maps that transactions could not bring up to date because they had an xid before they looked, and moves
-- on the one that the fast path has left behind: the next scan would step over what the fast path took. It has to be the first of
-- a transaction. Those that were written last are at the table's end; of many groups it takes a hundred.
CREATE OR REPLACE FUNCTION penstock._refresh(q penstock._queue)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    seen  constant regclass := _q(format('_%s.seen', q.name));
    late  constant boolean := pg_sequence_last_value(seen) & 1 <> 0;
    leaf  constant int := pg_sequence_last_value('_skip_map_slot');
    seq   bigint;
    lane  record;
begin
    if not late and (q.lifo or pg_sequence_last_value(_q(format('_%s.next', q.name))::regclass) - coalesce((_newest_skip_map(q.id, '', 0::smallint)).lo[1], 0) <= 1024)
       or pg_current_xact_id_if_assigned() is not null then
        return;
    end if;
    seq := coalesce(pg_sequence_last_value(_q(format('_%s.seq', q.name))::regclass), 0);
    perform pg_current_xact_id(); -- draws it
    if late then
        perform setval(seen, pg_sequence_last_value(seen) & ~1::bigint);
    end if;
    for lane in execute format($sql$
        select m.group_key, m.priority
          from (select * from _skip_map_%1$s m where m.ctid >= '(%2$s,0)' and m.queue = $1 order by m.n desc limit 100) m
         where $2 union select '', 0::smallint$sql$, leaf, greatest(pg_relation_size('_skip_map_' || leaf) / current_setting('block_size')::int - 8, 0)) using q.id, late
    loop
        execute format('select %s($1, $2, $3)', _q(format('_%s.skip_map', q.name))) using lane.group_key, lane.priority, seq;
    end loop;
end $function$;

-- _idle_for is for how many ms nothing has been enqueued. The register says, from the lowest bit on: whether there are skip maps
-- that could not bring their bound up to date (1), the end of the sequence when this last looked (27), and since when it has been
-- that, in tenths of a second. A bit that somebody sets just now may be lost: a scan is longer then.
CREATE OR REPLACE FUNCTION penstock._idle_for(queue text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    seen constant regclass := _q(format('_%s.seen', queue));
    was  constant bigint := pg_sequence_last_value(seen);
    seq  constant bigint := coalesce(pg_sequence_last_value(_q(format('_%s.seq', queue))::regclass), 0) & 134217727;
    now  constant bigint := extract(epoch from clock_timestamp()) * 10;
begin
    if was >> 1 & 134217727 <> seq or now < was >> 28 then
        perform setval(seen, (now << 28) | (seq << 1) | (was & 1));
        return 0;
    end if;
    return (now - (was >> 28)) * 100;
end $function$;

-- _maintain_storage is done about once a second, and by every fourth of calls that come alone. It gives space back: what does
-- that takes time, so sizes and registers are looked at first.
CREATE OR REPLACE FUNCTION penstock._maintain_storage(q penstock._queue)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    idle  constant bigint := _idle_for(q.name);
    here  constant int := (_ring_position(q.name)).slot;
    known _segment;
    began timestamptz;
    one   tid := '(0,0)';
    bytes bigint;
    used  boolean;
    other boolean;
begin
    select * into known from _segment s where s.queue = q.id and s.slot = here;
    select coalesce(max(pg_table_size(g.oid)) filter (where g.slot = here), 0), coalesce(bool_or(pg_relation_size(g.oid) > 0) filter (where g.slot = here), false),
           bool_or(g.slot <> here and case when s.slot is null then pg_relation_size(g.oid) > 0 else not _not_yet(s.again) end
                   or g.slot = here and s.slot is null and pg_relation_size(g.oid) > 0)
      into bytes, used, other
      from _segments(q.name) g left join _segment s on s.queue = q.id and s.slot = g.slot;
    if not other and bytes < q.segment_bytes and used and not _not_yet(known.again)
       and (bytes >= 16777216 or idle >= case when bytes >= 1048576 then 1000 else 10000 end) then
        began := clock_timestamp();
        one := _job_in(_q(format('_%s.%s', q.name, here)), q.lifo, known.job);
        if one is not null and clock_timestamp() - began > interval '10 ms' then -- else it can go, whatever the search has cost
            update _segment s set job = one, again = _look_again(began) where s.queue = q.id and s.slot = here;
        end if;
    end if;
    if other or bytes >= q.segment_bytes or one is null then
        perform _maintain_ring(q.name);
    end if;
    perform _reclaim_pairs();
    if q.done_since is not null then
        perform _turn_history(q);
    end if;
end $function$;

-- _maintain_at_commit does a queue's maintenance at the end of a transaction that it must not make fail. A row is deleted by its
-- place: it never moves, and _maintenance has no index. Deferred triggers run at PREPARE TRANSACTION, too, and where constraints
-- are set immediate; what it locks would stay locked for as long as the transaction goes on. Whether it ends now is told by the
-- client's statement, and by there being no function around it but one that commits. What a claim has leased lasts longer by what
-- maintenance took, be it because it waited for a lock, or that of an earlier statement of its transaction did. The claim has
-- said lease_until before. Leases that end in the same microsecond it takes for the claim's.
CREATE OR REPLACE FUNCTION penstock._maintain_at_commit()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    around text;
    now    constant float8 := extract(epoch from clock_timestamp());
    began  constant timestamptz := to_timestamp(coalesce(nullif(current_setting('penstock.maintaining', true), '')::float8, now)); -- in this transaction
begin
    get diagnostics around = pg_context;
    around := split_part(around, e'\n', 2);
    if exists (select from _queue q where q.id = new.queue) and (around = '' or around like '%COMMIT')
       and ((current_query() ilike '%prepare%' or current_query() ilike '%constraints%') -- cheaper than to make a regular expression
            and current_query() ~* $re$\mprepare\M.*\mtransaction\M|\mset\M.*\mconstraints\M$re$) is not true then
        perform set_config('penstock.maintaining', extract(epoch from began)::text, true);
        begin
            perform _maintain(new.queue);
        exception when others then
            raise warning 'the maintenance of a queue failed: %', sqlerrm;
        end;
        if new.until is not null and clock_timestamp() - began > interval '10 ms' then
            update _lease l set lease_until = l.lease_until + (clock_timestamp() - began) where l.queue = new.queue and l.lease_until = new.until;
        end if;
    end if;
    delete from _maintenance t where t.ctid = new.ctid;
    return null;
end $function$;

-- _write_flags raises flags in a queue's register and lowers others, while nobody else does. The error gives the lock back, which
-- only the end of the transaction would do, or of a session, that of a statement that was cancelled too. What a register says
-- stays.
CREATE OR REPLACE FUNCTION penstock._write_flags(flags regclass, raised bigint, lowered bigint DEFAULT 0)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    perform pg_advisory_xact_lock(1885695597, flags::oid::int); -- "penm"
    perform setval(flags, pg_sequence_last_value(flags) & ~lowered | raised);
    raise exception sqlstate 'PS002';
exception when sqlstate 'PS002' then
    null;
end $function$;

-- _watch raises watched if operators have set something, before that is committed, and lowers it, as maintenance may, once
-- nothing is set. The flag only says that whoever takes jobs has to look at the queue's row, which is as its snapshot shows it.
-- Nobody lowers it while somebody sets something: he has the row locked.
CREATE OR REPLACE FUNCTION penstock._watch(queue integer, lowering boolean DEFAULT false)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    watched constant bigint := 25769803776; -- see _queue_flags
    q       _queue;
    flags   regclass;
begin
    select * into q from _queue x where x.id = _watch.queue for no key update skip locked;
    if not found then
        return;
    end if;
    flags := _q(format('_%s.flags', q.name));
    if q.paused or q.max_running is not null then
        perform _write_flags(flags, watched);
    elsif lowering then
        perform _write_flags(flags, 0, watched);
    end if;
end $function$;

-- For tests: a queue believes that this much time has passed. Jobs that wait until then are due, leases that end until then have
-- ended, and schedules run. The server's clock and dedup windows stay. Only the owner of the schema may call it. Error: 42P01.
CREATE OR REPLACE FUNCTION penstock.advance_queue(name text, by interval)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q   constant int := (select x.id from _queue x where x.name = advance_queue.name);
    now constant timestamptz := clock_timestamp();
begin
    if q is not null then
        update _lease l set lease_until = greatest(l.lease_until - by, now) where l.queue = q and l.lease_until < 'infinity';
        update _scheduled d set due = greatest(d.due - by, now) where d.queue = q and d.due < 'infinity';
        update _schedule s set next = s.next - by where s.queue = q;
        if (select x.done_since is not null from _queue x where x.id = q) then
            update _queue x set done_since = array(select s - by from unnest(x.done_since) with ordinality u(s, i) order by u.i) where x.id = q;
            perform setval(turn, pg_sequence_last_value(turn) - 8 * (extract(epoch from by) * 1000)::bigint) from (select _q(format('_%s.done_turn', name))::regclass) t(turn);
        end if;
        perform setval(_q(format('_%s.maintained', name))::regclass, 0);
    end if;
    perform maintain_queue(name);
end $function$;

-- _next_run moves a schedule on to the first time that has not passed.
CREATE OR REPLACE FUNCTION penstock._next_run(queue integer, name text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    update _schedule s set next = _cron_next(s.cron, clock_timestamp())
     where s.queue = _next_run.queue and s.name = _next_run.name;
end $function$;

-- _cron_field is what a field of a cron text allows, ascending; null if it makes no sense. names stand for lo, lo + 1, ...
CREATE OR REPLACE FUNCTION penstock._cron_field(field text, lo integer, hi integer, names text[])
 RETURNS integer[]
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    part  text;
    m     text[];
    first int;
    last  int;
    step  int;
    all_  int[] := '{}';
begin
    foreach part in array string_to_array(lower(field), ',') loop
        m := regexp_match(part, $re$^(\*|([0-9]{1,2}|[a-z]{3})(-([0-9]{1,2}|[a-z]{3}))?)(/([0-9]{1,2}))?\Z$re$);
        if m is null then
            return null;
        end if;
        if m[1] = '*' then
            first := lo;
            last := hi;
        else
            first := case when m[2] ~ '^[0-9]' then m[2]::int else array_position(names, m[2]) - 1 + lo end;
            last := case when m[4] is null then case when m[6] is null then first else hi end
                         when m[4] ~ '^[0-9]' then m[4]::int else array_position(names, m[4]) - 1 + lo end;
        end if;
        step := coalesce(m[6], '1')::int;
        if (first between lo and last and last <= hi and step > 0) is not true then
            return null;
        end if;
        all_ := all_ || array(select generate_series(first, last, step));
    end loop;
    return array(select distinct x from unnest(all_) x order by x);
end $function$;

-- _cron_next is the first time after the given one that a cron text describes: minute hour day-of-month month day-of-week, in UTC
-- or in the zone that a TZ= before them names. As in Vixie's cron, either day is enough unless one of the two fields begins with
-- *, also as */2: then both must hold. A time that the clocks leave out when they are put forward comes as much later, and of one
-- that they show twice the second counts; both do if the hour begins with *. The rules of internal/cron are the same. Error:
-- 22023.
CREATE OR REPLACE FUNCTION penstock._cron_next(cron text, after timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    zone   text := coalesce((regexp_match(cron, $re$^\s*TZ=(\S+)\s$re$))[1], 'UTC');
    times  text := btrim(regexp_replace(cron, $re$^\s*TZ=\S+\s$re$, ''), E' \t\r\n');
    fields text[] := regexp_split_to_array(case lower(times)
                         when '@hourly' then '0 * * * *' when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *'
                         when '@weekly' then '0 0 * * 0' when '@monthly' then '0 0 1 * *'
                         when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *' else times end, $re$\s+$re$);
    months constant text[] := '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}';
    days   constant text[] := '{sun,mon,tue,wed,thu,fri,sat}';
    minute int[]; hour int[]; dom int[]; month int[]; dow int[];
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
        month  := _cron_field(fields[4], 1, 12, months);
        dow    := _cron_field(fields[5], 0, 7, days);
    end if;
    if minute is null or hour is null or dom is null or month is null or dow is null then
        raise exception 'the cron text % makes no sense', coalesce(quote_literal(cron), 'null')
        using errcode = '22023', hint = 'give minute, hour, day of month, month and day of week, like ''30 4 * * 1-5'', or @hourly, @daily, @weekly, @monthly, @yearly';
    end if;
    if 7 = any (dow) then
        dow := dow || 0;
    end if;
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
        if found is not null then
            return found;
        end if;
    end loop;
    raise exception 'the cron text % describes a time that never comes', quote_literal(cron)
    using errcode = '22023', hint = 'look at the day and the month';
end $function$;

-- Makes or changes a periodic job: one is enqueued at every time that cron describes, unless dedup_key makes it a duplicate.
-- Errors: 42P01, 22023 for a cron text that makes no sense or a time that never comes, 23514 for a value over its limit.
CREATE OR REPLACE FUNCTION penstock.schedule_bytes(queue text, name text, cron text, payload bytea, key text DEFAULT NULL::text, group_key text DEFAULT ''::text, priority integer DEFAULT 0, headers jsonb DEFAULT NULL::jsonb, dedup_key text DEFAULT NULL::text)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q     _queue := _queue_named(queue);
    first timestamptz := _cron_next(cron, clock_timestamp());
begin
    perform _refuse_job(payload, key, group_key, priority, headers, dedup_key),
            case when getdatabaseencoding() not in ('UTF8', 'SQL_ASCII') then convert_to(concat(key, group_key, dedup_key, headers), 'UTF8') end; -- see _readable
    if (octet_length(name) between 1 and 128) is not true then
        raise exception 'the schedule''s name has % bytes, expected 1 to 128', coalesce(octet_length(name), 0) using errcode = '23514', hint = 'use a shorter one';
    end if;
    insert into _schedule as s (queue, name, cron, next, priority, group_key, key, dedup_key, headers, payload)
    values (q.id, name, cron, first, coalesce(priority, 0), coalesce(group_key, ''), key, dedup_key, headers, payload)
    on conflict on constraint _schedule_pkey do update set cron = excluded.cron, priority = excluded.priority, group_key = excluded.group_key, key = excluded.key, dedup_key = excluded.dedup_key,
        headers = excluded.headers, payload = excluded.payload,
        next = case when s.cron = excluded.cron then s.next else excluded.next end
    returning s.next into first;
    return first;
end $function$;

-- Makes or changes a periodic job whose payload is JSON, as UTF-8; else as schedule_bytes.
CREATE OR REPLACE FUNCTION penstock.schedule(queue text, name text, cron text, payload jsonb, key text DEFAULT NULL::text, group_key text DEFAULT ''::text, priority integer DEFAULT 0, headers jsonb DEFAULT NULL::jsonb, dedup_key text DEFAULT NULL::text)
 RETURNS timestamp with time zone
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select schedule_bytes(queue, name, cron, convert_to(payload::text, 'UTF8'), key, group_key, priority, headers, dedup_key)
$function$;

-- Makes or changes a periodic job whose payload is text, as UTF-8; else as schedule_bytes.
CREATE OR REPLACE FUNCTION penstock.schedule(queue text, name text, cron text, payload text, key text DEFAULT NULL::text, group_key text DEFAULT ''::text, priority integer DEFAULT 0, headers jsonb DEFAULT NULL::jsonb, dedup_key text DEFAULT NULL::text)
 RETURNS timestamp with time zone
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select schedule_bytes(queue, name, cron, convert_to(payload, 'UTF8'), key, group_key, priority, headers, dedup_key)
$function$;

-- Ends a periodic job. Errors: 42P01, 42704 if there is none of the name.
CREATE OR REPLACE FUNCTION penstock.unschedule(queue text, name text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q _queue := _queue_named(queue);
begin
    delete from _schedule s where s.queue = q.id and s.name = unschedule.name;
    if not found then
        raise exception 'the queue % has no schedule %', quote_literal(queue), coalesce(quote_literal(name), 'null')
        using errcode = '42704', hint = 'list them with: penstock schedule list ' || quote_literal(queue);
    end if;
end $function$;

-- _job_in is where a job of a segment is, null if it holds none. Where jobs are taken from one end it looks from the other: while
-- some are left, that is one probe. Where only one at the near end is left, and a snapshot is pinned, it steps over all dead
-- entries; so what such a search has found is looked at first.
CREATE OR REPLACE FUNCTION penstock._job_in(segment text, lifo boolean, known tid DEFAULT NULL::tid)
 RETURNS tid
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'off'
 SET jit TO 'off'
AS $function$
declare
    job tid;
begin
    if known is not null then
        execute format('select t.ctid from %s t where t.ctid = $1', segment) into job using known;
    end if;
    if job is null then
        execute format('select t.ctid from %s t order by t.xid %s limit 1', segment, case when lifo then 'asc' else 'desc' end) into job;
    end if;
    return job;
end $function$;

-- _writers_in lists the transactions that may have written into a segment.
CREATE OR REPLACE FUNCTION penstock._writers_in(segment text)
 RETURNS text[]
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select coalesce(array_agg(distinct l.virtualtransaction), '{}')
      from pg_locks l
     where l.locktype = 'relation' and l.relation = segment::regclass and l.pid is distinct from pg_backend_pid()
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and l.mode not in ('AccessShareLock', 'RowShareLock')
$function$;

-- _still_in says whether one of them has not ended. Those that came after the segment was left behind take from it and do not
-- write. A prepared transaction has another name than before.
CREATE OR REPLACE FUNCTION penstock._still_in(segment text, writers text[])
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select exists (select from unnest(_writers_in(segment)) w where w = any (writers) or w like '-1/%')
$function$;

-- _truncate empties a segment, or one of a pair, that nobody uses any more, if nobody still does, and says whether it did. A row
-- that matters may have come, which is looked for under the lock; and a dump may be about to read what was there before it was
-- moved, or taken.
CREATE OR REPLACE FUNCTION penstock._truncate(segment text, alive text DEFAULT 'true'::text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET lock_timeout TO '20ms'
 SET jit TO 'off'
AS $function$
declare
    late boolean;
begin
    perform _step_back_for_dumps(segment); -- one that has locked it, too: pg_dump --jobs fails where its lock is waited for
    execute format('lock table %s in access exclusive mode', segment);
    perform _step_back_for_dumps(segment);
    execute format('select exists (select from %s r where %s)', segment, alive) into late;
    if late then
        return false;
    end if;
    execute format('truncate table %s', segment);
    perform _step_back_for_dumps(segment);
    return true;
exception when lock_not_available then
    return false;
end $function$;

-- _lock_again is when to try that again: less and less often, because it stands in the way of a pg_dump, say, which has the lock.
CREATE OR REPLACE FUNCTION penstock._lock_again(since timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
RETURN (clock_timestamp() + LEAST(GREATEST((clock_timestamp() - since), '00:00:01'::interval), '00:00:16'::interval));

-- _turn_on makes the lists of segments in skip maps out of date: see slots.
CREATE OR REPLACE FUNCTION penstock._turn_on(q penstock._queue)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    ring constant regclass := _q(format('_%s.ring', q.name))::regclass;
    here constant bigint := pg_sequence_last_value(ring);
begin
    perform setval(ring, here + 1024);
    update _segment s set turn = here / 1024 + 1 where s.queue = q.id and s.slot = here % 1024;
end $function$;

-- _empty_segment truncates a retired segment if its lock is free. What it holds came from somebody who had read the register
-- before it moved, and took very long from there to his lock: that goes to the end of the queue.
CREATE OR REPLACE FUNCTION penstock._empty_segment(q penstock._queue, s penstock._segment)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET jit TO 'off'
AS $function$
declare
    segment constant text := _q(format('_%s.%s', q.name, s.slot));
    began   constant timestamptz := clock_timestamp();
    late    int;
begin
    if s.again is null then
        perform _turn_on(q); -- who has a list from before this segment left it makes a new one
    end if;
    if _truncate(segment) then
        delete from _segment x where x.queue = q.id and x.slot = s.slot;
        return;
    end if;
    execute format($sql$
        with d as (
            delete from %1$s t where t.ctid = any (array(select t.ctid from %1$s t limit 10000 for update skip locked)) returning t.*)
        insert into %2$s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
        select coalesce(d.id, d.seq), d.attempt, d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d order by d.seq$sql$,
        segment, _q(q.name));
    get diagnostics late = row_count;
    update _segment x set again = case when late = 0 then greatest(_lock_again(s.retired), _look_again(began)) end where x.queue = q.id and x.slot = s.slot;
end $function$;

-- _left_in counts the jobs of a segment and what they take, up to so many, from the end at which they are not taken.
CREATE OR REPLACE FUNCTION penstock._left_in(segment text, lifo boolean, most integer, OUT jobs integer, OUT bytes bigint)
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'off'
 SET jit TO 'off'
AS $function$
begin
    execute format('select count(*), coalesce(sum(octet_length(j.payload) + 200), 0) from (select t.payload from %s t order by t.xid %s limit %s) j',
                   segment, case when lifo then 'asc' else 'desc' end, most) into jobs, bytes;
end $function$;

-- _taken_in estimates how many bytes of a segment are of jobs that have been taken, by a hundred of its pages.
CREATE OR REPLACE FUNCTION penstock._taken_in(segment text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET jit TO 'off'
AS $function$
declare
    pages constant bigint := pg_relation_size(segment) / 8192;
    share constant float8 := least(100.0 / greatest(pages, 1), 1);
    jobs  bigint;
begin
    execute format('select coalesce(sum(80 + pg_column_size(t.payload) + coalesce(pg_column_size(t.key), 0)
                                        + coalesce(pg_column_size(t.headers), 0) + coalesce(pg_column_size(t.failures), 0)), 0)
                      from %s t tablesample system (%s)', segment, 100 * share) into jobs;
    return pg_table_size(segment) - jobs / share;
end $function$;

-- _carry_over moves jobs from a segment to the one that comes next in order, and returns how many. They stay what they are, seq
-- and xid included, so they come before the next one's own and skip maps hold for them as before. The last ones go first: what
-- stays is before them.
CREATE OR REPLACE FUNCTION penstock._carry_over(from_segment text, to_segment text, to_slot integer, most integer)
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET jit TO 'off'
AS $function$
declare
    many int;
begin
    execute format($sql$
        with d as (
            delete from %1$s t where t.ctid = any (array(select t.ctid from %1$s t order by t.seq desc limit %4$s for update skip locked)) returning t.*)
        insert into %2$s (xid, seq, created_at, id, attempt, priority, slot, group_key, key, headers, payload, failures)
        select d.xid, d.seq, d.created_at, d.id, d.attempt, d.priority, %3$s, d.group_key, d.key, d.headers, d.payload, d.failures from d$sql$,
        from_segment, to_segment, to_slot, most);
    get diagnostics many = row_count;
    return many;
end $function$;

-- _leave looks whether a segment that was left behind can leave the list. Where few segments are free, and nobody took from it
-- since the last look, a few jobs are carried over to the next one: up to an eighth of what it has held. Where none is free, and
-- the current one grows by jobs that have been taken, up to as much as these (garbage, in bytes); but to the current one itself,
-- which will have to do the same, half of that.
CREATE OR REPLACE FUNCTION penstock._leave(q penstock._queue, s penstock._segment, scarce boolean, garbage bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    segment constant text := _q(format('_%s.%s', q.name, s.slot));
    began   timestamptz;
    job     tid;
    most    constant int := 10000;
    was     constant _segment := s;
    heir    record;
    jobs    int;
    bytes   bigint;
begin
    if s.writers is null then -- not when it was left behind: who had read the register then may have got his lock since
        s.writers := _writers_in(segment) || _writers_in(_q(q.name)); -- an INSERT locks the queue before it reads the register
        s.looked := clock_timestamp();
        update _segment x set writers = s.writers, looked = s.looked where x.queue = q.id and x.slot = s.slot;
    end if;
    -- One that has the queue's lock, but not the segment's, may be between the two, which takes moments. A transaction that stays open has
    -- the queue's lock for as long, wherever it has written: it delays this for ten seconds, no longer.
    if _still_in(segment, s.writers) or _not_yet(s.looked + interval '10 s') and _writers_in(_q(q.name)) && s.writers then
        return;
    end if;
    began := clock_timestamp();
    job := _job_in(segment, q.lifo, s.job);
    if job is null then
        update _segment x set retired = clock_timestamp(), again = null where x.queue = q.id and x.slot = s.slot;
        return;
    end if;
    if clock_timestamp() - began > interval '10 ms' then
        s.job := job;
    end if;
    select x.slot, x.turn = max(x.turn) over () as current into heir
      from _segment x where x.queue = q.id and x.turn > s.turn and x.retired is null order by x.turn limit 1;
    if scarce and not s.leaving then
        select l.jobs, l.bytes into jobs, bytes from _left_in(segment, q.lifo, greatest(most, garbage / 200)::int + 1) l;
        s.leaving := bytes <= case when heir.current then garbage / 2 else garbage end
                  or jobs <= most and jobs = coalesce(s.rest, -1) and bytes <= least(8388608, pg_table_size(segment) / 8);
        s.rest := jobs;
    end if;
    if s.leaving then
        s.leaving := _carry_over(segment, _q(format('_%s.%s', q.name, heir.slot)), heir.slot, most) > 0; -- else somebody holds what is left: it is others' turn
        began := clock_timestamp();
    end if;
    s.again := _look_again(began);
    if s is distinct from was then
        update _segment x set rest = s.rest, leaving = s.leaving, job = s.job, again = s.again where x.queue = q.id and x.slot = s.slot;
    end if;
end $function$;

-- _not_yet says whether a time is ahead, though not so far that a clock must have been set back.
CREATE OR REPLACE FUNCTION penstock._not_yet(at timestamp with time zone)
 RETURNS boolean
 LANGUAGE sql
RETURN COALESCE(((clock_timestamp() >= (at - '01:00:00'::interval)) AND (clock_timestamp() <= at)), false);

-- _look_again is when to look again into a segment in which jobs were looked for and found: at once, or, where many dead rows
-- were stepped over, after two hundred times as long.
CREATE OR REPLACE FUNCTION penstock._look_again(began timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
RETURN CASE WHEN ((clock_timestamp() - began) > '00:00:00.01'::interval) THEN (clock_timestamp() + LEAST(((200)::double precision * (clock_timestamp() - began)), '00:01:00'::interval)) ELSE NULL::timestamp with time zone END;

-- _in_trouble says why the maintenance of a queue's segment, or of a ring of two, failed: to the server's log, and to whoever
-- asks for the status. Where the disk is full even that may fail.
CREATE OR REPLACE FUNCTION penstock._in_trouble(queue penstock._queue, in_slot integer, ring text, error text, state text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    raise warning 'the maintenance of % failed: %', coalesce(ring, format('segment %s of queue %s', in_slot, queue.name)), error using errcode = state;
    if ring is null then
        update _segment s set trouble = error, again = clock_timestamp() + interval '5 s' where s.queue = (_in_trouble.queue).id and s.slot = in_slot;
    else
        update _pair p set trouble = error, again = clock_timestamp() + interval '5 s' where p.name = ring;
    end if;
exception when others then
    null;
end $function$;

-- _maintain_ring sees to the segments of a queue that jobs are not written to any more, and moves its pointer on when the current
-- one is full, or holds nothing. It is called about once a second, at the end of a short transaction. force does not wait for the
-- queue to be idle. Each TRUNCATE rewrites catalogue rows, which a pinned snapshot keeps; so a queue in use gives a segment back
-- only when that is worth it.
CREATE OR REPLACE FUNCTION penstock._maintain_ring(queue text, force boolean DEFAULT false)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q         _queue;
    s         _segment;
    ring      regclass := _q(format('_%s.ring', queue))::regclass;
    current   int;
    next_slot int;
    bytes     bigint;
    idle      bigint;
    scarce    boolean;
    none_free boolean;
    garbage   bigint := 0;
    leave     boolean;
    began     timestamptz;
    fresh     boolean;
    one       tid;
begin
    perform _read_committed();
    select * into q from _queue x where x.name = queue;
    if not pg_try_advisory_xact_lock('_queue'::regclass::oid::int, q.id) then
        return;
    end if;
    idle := _idle_for(queue);
    current := (_ring_position(queue)).slot;
    bytes := pg_table_size(_q(format('_%s.%s', queue, current)));
    fresh := not exists (select from _segment x where x.queue = q.id and x.slot = current and x.retired is null);
    -- A segment that has something and no row: its rotation was rolled back, or it is that of
    -- a writer who was so late that it had become free meanwhile.
    insert into _segment (queue, slot, turn, retired)
    select q.id, g.slot, pg_sequence_last_value(ring) / 1024, case when g.slot <> current then clock_timestamp() end
      from _segments(queue) g
     where (g.slot = current or pg_relation_size(_q(format('_%s.%s', queue, g.slot))) > 0)
       and not exists (select from _segment x where x.queue = q.id and x.slot = g.slot);
    select 2 * count(*) filter (where x.slot is not null and x.retired is null) > count(g.slot) and not coalesce(bool_or(x.leaving and x.retired is null), false),
           count(x.slot) = count(g.slot)
      into scarce, none_free
      from _segments(queue) g left join _segment x on x.queue = q.id and x.slot = g.slot;
    if fresh then
        update _segment x set retired = null, writers = null, looked = null, rest = null, leaving = false, job = null, again = null, turn = pg_sequence_last_value(ring) / 1024
         where x.queue = q.id and x.slot = current and x.retired is not null;
    end if;
    if none_free and bytes >= q.segment_bytes then
        garbage := _taken_in(_q(format('_%s.%s', queue, current)));
    end if;
    for s in select * from _segment x
              where x.queue = q.id and x.slot <> current
                and not _not_yet(x.again)
              order by x.turn loop
        begin -- what is wrong with one of them holds up neither the others nor the rest of the maintenance
            if s.retired is not null then
                perform _empty_segment(q, s);
            else
                perform _leave(q, s, scarce, case when garbage >= q.segment_bytes then garbage else 0 end);
            end if;
            if s.trouble is not null then
                update _segment x set trouble = null where x.queue = q.id and x.slot = s.slot;
            end if;
        exception when others then
            perform _in_trouble(q, s.slot, null, sqlerrm, sqlstate);
        end;
    end loop;
    leave := bytes >= q.segment_bytes and not fresh; -- others do not see yet that it is listed
    if not leave and not fresh and pg_relation_size(_q(format('_%s.%s', queue, current))) > 0
       and (force or (bytes >= least(q.segment_bytes, 16777216) or idle >= case when bytes >= 1048576 then 1000 else 10000 end)
                     and not (select _not_yet(x.again) from _segment x where x.queue = q.id and x.slot = current)) then
        began := clock_timestamp();
        one := _job_in(_q(format('_%s.%s', queue, current)), q.lifo, (select x.job from _segment x where x.queue = q.id and x.slot = current));
        leave := one is null; -- not full, but done with
        if not leave and clock_timestamp() - began > interval '10 ms' then
            update _segment x set job = one, again = _look_again(began) where x.queue = q.id and x.slot = current;
        end if;
    end if;
    if leave then
        select g.slot into next_slot
          from _segments(queue) g
         where not exists (select from _segment x where x.queue = q.id and x.slot = g.slot)
           and pg_relation_size(_q(format('_%s.%s', queue, g.slot))) = 0
         order by (g.slot < current), g.slot limit 1;
        if next_slot is not null then
            perform setval(ring, (pg_sequence_last_value(ring) / 1024 + 1) * 1024 + next_slot);
            insert into _segment (queue, slot, turn) values (q.id, next_slot, pg_sequence_last_value(ring) / 1024);
        end if;
    end if;
end $function$;

-- _reclaim_skip_maps turns the ring of skip maps once the current segment is large: it copies the newest of each group and
-- priority to the other one, a thousand with each call, points there with the one after, and truncates the old one as soon as its
-- lock is free. A skip map that is lost meanwhile costs a scan and nothing else: an older one stays valid for ever. Where the
-- newest ones alone are as large it does so once a minute.
CREATE OR REPLACE FUNCTION penstock._reclaim_skip_maps()
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
declare
    p       _pair;
    current constant int := pg_sequence_last_value('_skip_map_slot');
    here    constant text := _q('_skip_map_' || current);
    there   constant text := _q('_skip_map_' || (1 - current));
    last    _skip_map;
    many    int;
begin
    if not pg_try_advisory_xact_lock('_skip_map'::regclass::oid::int, 0) then
        return;
    end if;
    select * into p from _pair x where x.name = '_skip_map';
    if p.retired is not null then
        if _not_yet(p.again) then
            return;
        elsif _truncate(there, 'false') then
            update _pair x set retired = null, again = case when pg_relation_size(here) >= 4194304 then clock_timestamp() + interval '1 min' end where x.name = p.name;
        else
            update _pair x set again = _lock_again(p.retired) where x.name = p.name;
        end if;
        return;
    end if;
    execute format('select * from %s m order by m.queue desc, m.group_key desc, m.priority desc limit 1', there) into last;
    if last.n is null and (pg_relation_size(here) < 4194304 or _not_yet(p.again)) then
        return;
    end if;
    execute format($sql$
        with recursive lane(queue, group_key, priority) as (
            select $1, $2 collate "C", $3
            union all
            select n.* from lane l cross join lateral (
                select m.queue, m.group_key, m.priority from %1$s m
                 where (m.queue, m.group_key, m.priority) > (l.queue, l.group_key, l.priority) and exists (select from _queue q where q.id = m.queue)
                 order by m.queue, m.group_key, m.priority limit 1) n)
        insert into %2$s (queue, n, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots, slot)
        select l.queue, l.n, l.base, l.seen, l.xid, l.turn, l.priority, l.group_key, l.lo, l.hi, l.pending, l.slots, %3$s
          from (select * from lane offset 1 limit 1000) d
         cross join lateral (select * from %1$s m where m.queue = d.queue and m.group_key = d.group_key and m.priority = d.priority order by m.n desc limit 1) l$sql$,
        here, there, 1 - current) using coalesce(last.queue, -1), coalesce(last.group_key, ''), coalesce(last.priority, '0');
    get diagnostics many = row_count;
    if many < 1000 and (last.n is not null or many = 0) then
        perform setval('_skip_map_slot', 1 - current);
        update _pair x set retired = clock_timestamp() where x.name = p.name;
    end if;
end $function$;

-- _listed lists the segments to look into, by the ring's register: the one from which rows are carried over comes first, so that
-- a row that moves meanwhile is not missed. Without a search_path, so that it costs no call.
CREATE OR REPLACE FUNCTION penstock._listed(register regclass)
 RETURNS integer[]
 LANGUAGE sql
RETURN CASE pg_sequence_last_value(register) WHEN 0 THEN '{0}'::integer[] WHEN 1 THEN '{1}'::integer[] WHEN 2 THEN '{1,0}'::integer[] ELSE '{0,1}'::integer[] END;

-- _reclaim_pair keeps one of these rings small, and says whether it truncated a segment. When little is left of the one that is
-- not written to, or the other has become twice as large as what is left (by a hundred pages), the rest is carried over. Were the
-- whole segment the measure, each turn would be twice as large. alive says which rows r count. A segment that is not listed and
-- holds some was written to by who read the register before it moved, and took very long from there to his lock; or it comes from
-- a dump, in which registers are younger than rows.
CREATE OR REPLACE FUNCTION penstock._reclaim_pair(ring text, full_bytes bigint, alive text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
AS $function$
declare
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
    many     int;
    rest     boolean;
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
            p.writers := _writers_in(there);
            update _pair x set writers = p.writers where x.name = ring;
        end if;
        if _still_in(there, p.writers) then
            return false;
        end if;
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
        return false; -- it goes on with the next call
    end if;
    execute format('select exists (select from %s r where %s)', there, alive) into rest;
    if rest then -- somebody has locked it
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
end $function$;

-- _reclaim_pairs looks which of the rings of two segments have something to give back.
CREATE OR REPLACE FUNCTION penstock._reclaim_pairs()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    p record;
begin
    for p in
        select x.*, r.trouble
          from (values
            ('_skip_map', '{_skip_map_0,_skip_map_1}'::regclass[], pg_sequence_last_value('_skip_map_slot'), 4194304, ''),
            ('_lease', '{_lease_0,_lease_1}', pg_sequence_last_value('_lease_slot'), 16777216, 'true'),
            ('_scheduled', '{_scheduled_0,_scheduled_1}', pg_sequence_last_value('_scheduled_slot'), 8388608, 'true'),
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
            if p.trouble is not null then
                update _pair x set trouble = null where x.name = p.ring;
            end if;
        exception when others then
            perform _in_trouble(null, null, p.ring, sqlerrm, sqlstate);
        end;
    end loop;
end $function$;

-- _step_back_for_dumps raises lock_not_available if a dump may be about to read what its caller, who has a segment locked
-- exclusively, wants to move to the other segment and truncate. The dump's snapshot is older than the move, so it would find the
-- rows in neither: TRUNCATE is not MVCC, and a copy is. Call it when the segment is locked, and again as the last thing: what
-- came meanwhile and waits for that lock is seen then. Then undo what was done and try again later. A dump that reads the segment
-- already would have kept the caller from locking it. What is to be seen is one that has taken its snapshot and not yet come to
-- lock the segment: pg_dump, by its name, because it locks all tables before it reads the first; and whoever has a snapshot and
-- waits for the lock to read some other table. A pg_dump of other schemas is taken for one that will come.
CREATE OR REPLACE FUNCTION penstock._step_back_for_dumps(segment regclass)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if _dump_is_coming(segment) then
        raise exception 'a dump is about to read %', segment using errcode = '55P03';
    end if;
end $function$;

-- _dump_is_coming says whether a dump may be about to read the segment, see _step_back_for_dumps. It looks at the sessions as
-- they are now, and locks nothing.
CREATE OR REPLACE FUNCTION penstock._dump_is_coming(segment regclass)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    perform pg_stat_clear_snapshot(); -- a transaction is shown the sessions as they were when it looked first
    return exists (select from pg_stat_activity a
                    where a.datname = current_database() and a.pid <> pg_backend_pid()
                      and (a.application_name like $re$pg\_dump%$re$
                           or a.backend_xmin is not null
                              and exists (select from pg_locks l
                                           where l.pid = a.pid and not l.granted and l.mode = 'AccessShareLock'
                                             and l.locktype = 'relation' and l.relation <> segment)));
end $function$;

-- _is_dumped says whether a pg_dump has the segment locked. Then its lock is not to be asked for: pg_dump --jobs fails where
-- anybody waits for an exclusive one, be it for milliseconds.
CREATE OR REPLACE FUNCTION penstock._is_dumped(segment regclass)
 RETURNS boolean
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                    where l.locktype = 'relation' and l.relation = segment and l.granted
                      and l.database = (select d.oid from pg_database d where d.datname = current_database())
                      and a.application_name like $re$pg\_dump%$re$)
$function$;

-- _make_history makes the ring. Its register, done_turn, holds 8 * the time since which the current segment is written to, in ms,
-- + its slot.
CREATE OR REPLACE FUNCTION penstock._make_history(q penstock._queue)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    ring constant text := _q(format('_%s.done', q.name));
    turn constant text := _q(format('_%s.done_turn', q.name));
begin
    execute format('create sequence %s minvalue 0', turn);
    perform setval(turn, 8 * (extract(epoch from clock_timestamp()) * 1000)::bigint);
    execute format($ddl$
        create table %s (
            slot        smallint    not null default (pg_sequence_last_value(%L) %% 8)::smallint,
            finished_at timestamptz not null default clock_timestamp(),
            claimed_at  timestamptz, -- null: before the queue kept history
            worker      text        not null,
            group_key   text        not null,
            priority    smallint    not null,
            key         text,
            id          bigint,      -- null: several, in arrays
            attempt     integer,
            created_at  timestamptz,
            failures    jsonb,
            report      jsonb,
            jobs        bigint[],
            attempts    integer[],
            created     timestamptz[],
            failed      jsonb[]
        ) partition by list (slot)$ddl$, ring, turn);
    execute format('alter table %s alter jobs set storage plain, alter attempts set storage plain, alter created set storage plain', ring); -- 255 fit a page
    for slot in 0 .. 5 loop
        execute format('create table %s partition of %s for values in (%s) with (autovacuum_enabled = false, toast.autovacuum_enabled = false)',
                       _q(format('_%s.done_%s', q.name, slot)), ring, slot);
    end loop;
    update _queue x set done_since = array_fill('-infinity'::timestamptz, '{6}') where x.id = q.id;
end $function$;

-- _turn_history gives back what is older than is to be kept, all of it where nothing is, and goes on to the next segment once the
-- current one has a quarter of that time, or a sixth of the bytes.
CREATE OR REPLACE FUNCTION penstock._turn_history(q penstock._queue)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    turn     constant regclass := _q(format('_%s.done_turn', q.name))::regclass;
    state    constant bigint := pg_sequence_last_value(turn);
    here     constant int := state % 8;
    following constant int := (here + 1) % 6;
    now_ms   constant bigint := floor(extract(epoch from clock_timestamp()) * 1000);
    now      constant timestamptz := to_timestamp(now_ms / 1000.0);
    began    timestamptz := to_timestamp(state / 8 / 1000.0);
    segments constant regclass[] := array(select _q(format('_%s.done_%s', q.name, s))::regclass from generate_series(0, 5) s);
    crowded  constant boolean := pg_table_size(segments[here + 1]) >= q.keep_done_bytes / 6;
    slot     int;
begin
    -- Noted with the first look at it: the register moves even if its transaction fails. What seems to be later than now was
    -- before the clock was set back.
    if q.done_since[here + 1] <> began or now < any (q.done_since) then
        q.done_since[here + 1] := began;
        q.done_since := array(select least(s, now) from unnest(q.done_since) with ordinality u(s, n) order by n);
        update _queue x set done_since = q.done_since where x.id = (select y.id from _queue y where y.id = q.id for no key update skip locked);
        if not found then
            return;
        elsif began > now then
            began := now;
            perform setval(turn, 8 * now_ms + here);
        end if;
    end if;
    for slot in select s from generate_series(0, 5) s where pg_relation_size(segments[s + 1]) > 0 loop
        if q.keep_done is null
           or slot <> here and (q.done_since[(slot + 1) % 6 + 1] < now - q.keep_done or slot = following and crowded) then -- it ended when the next one began
            if not _is_dumped(segments[slot + 1]) then
                perform _truncate(segments[slot + 1]::text, 'false');
            end if;
        end if;
    end loop;
    if (crowded or began < now - q.keep_done / 4) and pg_relation_size(segments[here + 1]) > 0 and pg_relation_size(segments[following + 1]) = 0 then
        perform setval(turn, 8 * now_ms + following);
    end if;
end $function$;

-- _done_jobs is what is kept of up to most jobs, the latest first, behind a position, or of some jobs; and the position where it
-- goes on, null at the end. A page of a segment holds what was done about then, so it reads pages from the last one back, and no
-- more than 2,000 a call.
CREATE OR REPLACE FUNCTION penstock._done_jobs(queue integer, most integer, before text, ids bigint[])
 RETURNS jsonb
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET jit TO 'off'
AS $function$
declare
    q       constant _queue := (select q from _queue q where q.id = queue);
    at      constant bigint[] := string_to_array(before, '.'); -- 8 * the segment's beginning + its slot, page, line and place
    state   bigint;
    slot    int;
    ring    bigint;
    there   boolean := before is null; -- what comes before the position was listed
    segment text;
    upto    bigint;
    done    jsonb := '[]';
    more    jsonb;
    looked  int := 0;
begin
    if (most between 1 and 10000) is not true then
        raise exception 'up to % jobs cannot be listed', coalesce(most::text, 'null') using errcode = '22023', hint = 'give 1 to 10000';
    elsif before is not null and (cardinality(at) = 4 and array_position(at, null) is null) is not true then
        raise exception 'there is no position %', quote_literal(before) using errcode = '22023', hint = 'give the one that came with the last job that was listed';
    elsif q.done_since is null then
        return jsonb_build_object('jobs', done);
    end if;
    state := pg_sequence_last_value(_q(format('_%s.done_turn', q.name))::regclass);
    for i in 0 .. 5 loop
        slot := (state % 8 + 6 - i) % 6;
        ring := case when i = 0 then state when q.done_since[slot + 1] > '-infinity' then 8 * round(extract(epoch from q.done_since[slot + 1]) * 1000) + slot else 0 end;
        there := there or ring = at[1]; -- if none is, it was given back, with all that is older
        continue when not there;
        segment := _q(format('_%s.done_%s', q.name, slot));
        upto := pg_relation_size(segment) / current_setting('block_size')::int;
        if ring = at[1] then
            upto := least(upto, at[2] + 1);
        end if;
        while upto > 0 loop
            if looked >= 2000 then
                return jsonb_build_object('jobs', done, 'next', format('%s.%s.0.0', ring, upto));
            end if;
            execute format($sql$
                select jsonb_agg(to_jsonb(x) order by x.page desc, x.line desc, x.place desc)
                  from (select $5 || '.' || (t.ctid::text::point)[0] || '.' || (t.ctid::text::point)[1] || '.' || j.place as position, -- a tid is written as a point is
                               (t.ctid::text::point)[0]::bigint as page, (t.ctid::text::point)[1]::int as line, j.place,
                               j.id, t.key, t.group_key, t.priority, j.attempt, j.created_at, t.claimed_at, t.finished_at, t.worker, j.failures, t.report
                          from %s t cross join lateral (
                               select t.id, t.attempt, t.created_at, t.failures, 1::bigint where t.id is not null
                               union all
                               select u.* from unnest(t.jobs, t.attempts, t.created, t.failed) with ordinality u) j(id, attempt, created_at, failures, place)
                         where t.ctid >= $1 and t.ctid < $2
                           and ($3 is null or (t.ctid, j.place) < ($3, $4)) and ($6 is null or j.id = any ($6))
                         order by t.ctid desc, j.place desc limit $7) x$sql$, segment)
               into more using format('(%s,0)', greatest(upto - 8, 0))::tid, format('(%s,0)', upto)::tid,
                               case when ring = at[1] then format('(%s,%s)', at[2], at[3])::tid end, at[4], ring::text, ids, most - jsonb_array_length(done);
            done := done || coalesce(more, '[]');
            if jsonb_array_length(done) >= most then
                return jsonb_build_object('jobs', done, 'next', done -> -1 -> 'position');
            end if;
            upto := upto - 8;
            looked := looked + 8;
        end loop;
    end loop;
    return jsonb_build_object('jobs', done);
end $function$;

-- _group_functions is the text of these.
CREATE OR REPLACE FUNCTION penstock._group_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {ready} lists up to most groups that have jobs in the ring, of in_groups or, if that is null, of all: in the order of
-- their bytes, those behind a group first. claiming: for who wants to claim, to whom nothing is ready while the queue is
-- paused or as many run as may.
--
-- From one group to the next it goes by skip maps and the index. What lies between two groups that have skip maps is alive, or was
-- never taken; of a group that has one it reads only the ranges in which jobs may be. So it steps over nothing that
-- was taken, and costs some probes for each group that jobs were taken from.
create or replace function {ready}(in_groups text[], behind text, most int, claiming boolean default true) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags      constant bigint := pg_sequence_last_value({flags});
    priorities constant smallint[] := array(select p from generate_series(-16, 15) p where flags & (1::bigint << (16 + p)) <> 0);
    listed     constant text[] := array(select distinct x collate "C" from unnest(in_groups) x where x is not null order by 1);
    skip_map_slot  constant smallint := pg_sequence_last_value({skip_map_slot});
    slots      smallint[];
    here       smallint;
    leaf       int;
    got        int;
    room       int;
    upto       text;
    part       text[];
    found      text[] := '{}';
begin
    if (most between 1 and 10000) is not true then
        raise exception 'most is %, expected 1 to 10000', coalesce(most::text, 'null') using errcode = '22023', hint = 'call it again for those behind the last one';
    end if;
    if claiming then
        {maintain_if_due}
        if flags & {watched} <> 0 then
            room := (select case when q.paused then 0 else q.max_running end from {schema}._queue q where q.id = {id});
        end if;
        if room is not null then
            foreach leaf in array {listed lease} loop
{leaf of lease}
                select count(*) into got from {leaf} l where l.queue = {id};
{end}
                room := room - got;
            end loop;
            if room <= 0 then
                return;
            end if;
        end if;
    end if;
    slots := {slots};
    foreach upto in array array[null, behind] loop -- behind it, and then from the first one up to it
        part := '{}';
        for i {older_first} loop
            here := slots[i];
{segments here}
            part := part || array(
                with recursive g(group_key, mapped) as (
                    select x.group_key collate "C", true from unnest(case when in_groups is not null then listed when upto is null then array[behind] else array[''] end) x(group_key)
                    union all
                    select coalesce(b.group_key, m.group_key), b.group_key is null
                      from g left join lateral (
                            select m.group_key from {schema}._skip_map m where m.slot = skip_map_slot and m.queue = {id} and m.group_key > g.group_key order by m.group_key limit 1) m on true
                     cross join lateral (select case
                            when m.group_key is null then (select t.group_key from {segment} t where t.group_key > g.group_key order by t.group_key limit 1)
                            else (select t.group_key from {segment} t where t.group_key > g.group_key and t.group_key < m.group_key order by t.group_key limit 1) end) b(group_key)
                     where in_groups is null and (upto is null or g.group_key < upto) and coalesce(b.group_key, m.group_key) is not null)
                select g.group_key from g
                 where case when upto is null then g.group_key > behind else g.group_key <= upto end
                   and (not g.mapped or exists (
                        select from unnest(priorities) p(priority)
                          left join lateral (
                                select k.lo, k.hi, k.pending from {schema}._skip_map k
                                 where k.slot = skip_map_slot and k.queue = {id} and k.group_key = g.group_key and k.priority = p.priority order by k.n desc limit 1) k on true
                         where exists ( -- what committed late, wherever it is; of a transaction that wrote much a claim may look
                                select from unnest(k.pending) x cross join lateral (
                                    select count(*) = 100 or bool_or(w.group_key = g.group_key and w.priority = p.priority) as late
                                      from (select t.group_key, t.priority from {segment} t where t.xid = x limit 100) w) w
                                 where pg_visible_in_snapshot(x, pg_current_snapshot()) and w.late)
                            or exists (
                                select from unnest(coalesce(k.lo, '{0}'), coalesce(k.hi, '{9223372036854775806}')) r(lo, hi) cross join lateral (
                                    select from {segment} t
                                     where t.group_key = g.group_key and t.priority = p.priority and t.seq >= r.lo and t.seq <= r.hi limit 1) t)))
                 limit most);
{end}
        end loop;
        found := found || array(select distinct x collate "C" from unnest(part) x order by 1 limit most - cardinality(found));
        exit when cardinality(found) >= most;
    end loop;
    return query select unnest(found);
end $fn$;

$$ $function$;

-- _count_groups counts the jobs of up to most groups after one, or from the first one on, by where they are, as _count_jobs does:
-- of what is leased, is to come later or is dead upto each, and cut says if there is more; of the jobs that each group has in the
-- ring a thousand, and more says if there are others. oldest is in us.
CREATE OR REPLACE FUNCTION penstock._count_groups(queue integer, after text, most integer, upto integer)
 RETURNS TABLE(group_key text, ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest bigint, more boolean, cut boolean)
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET jit TO 'off'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
declare
    name       constant text := (select q.name from _queue q where q.id = queue);
    priorities constant smallint[] := (_queue_flags(name)).priorities;
    in_ring    text[];
    jobs       text;
    written    text;
begin
    execute format('select array(select g from %s(null, $1, $2, false) g)', _q(format('_%s.ready', name))) into in_ring using after, most;
    select string_agg(format($sql$
                select t.key, coalesce(t.id, t.seq) as id, t.created_at from r cross join lateral (
                    select * from %s t where t.group_key = n.group_key and t.priority = p.priority and t.seq >= r.lo and t.seq <= r.hi order by t.seq limit 1001) t$sql$, s.oid::regclass),
            ' union all ' order by g.turn nulls first),
           string_agg(format('(select t.group_key, t.priority, t.seq, t.key, coalesce(t.id, t.seq) as id, t.created_at from %s t where t.xid = e.x limit 1001)', s.oid::regclass), ' union all ')
      into jobs, written
      from _segments(name) s left join _segment g on g.queue = _count_groups.queue and g.slot = s.slot
     where pg_relation_size(s.oid) > 0;
    return query execute format($sql$
        with leased as materialized (select e.group_key, coalesce(256 - bit_count(e.done), 1) as jobs from _lease e where e.queue = $1 limit $6),
        later as materialized (select w.group_key, w.due, w.created_at from _scheduled w where w.queue = $1 order by w.due limit $6),
        dead as materialized (select d.group_key from _dead_job d where d.queue = $1 limit $6),
        rest as (select (select count(*) from leased) = $6 or (select count(*) from later) = $6 or (select count(*) from dead) = $6 as cut),
        other as (
            select o.group_key, sum(o.ready)::bigint as ready, sum(o.running)::bigint as running, sum(o.delayed)::bigint as delayed,
                   sum(o.waiting)::bigint as waiting, sum(o.dead)::bigint as dead, min(o.oldest) as oldest
              from (
                select e.group_key, 0 as ready, sum(e.jobs) as running, 0 as delayed, 0 as waiting, 0 as dead, null::timestamptz as oldest
                  from leased e group by e.group_key
                union all
                select w.group_key, count(*) filter (where w.due <= clock_timestamp()), 0,
                       count(*) filter (where w.due > clock_timestamp() and w.due < 'infinity'),
                       count(*) filter (where w.due = 'infinity'), 0, min(w.created_at) filter (where w.due <= clock_timestamp())
                  from later w group by w.group_key
                union all
                select d.group_key, 0, 0, 0, 0, count(*), null from dead d group by d.group_key) o
             group by o.group_key),
        name as (
            select n.group_key from (select unnest($2 || $3) collate "C" union select o.group_key from other o) n(group_key)
             where n.group_key > $3 or $3 = '' order by n.group_key limit $4 + 1), -- '' may have none
        map as materialized (
            select n.group_key, p.priority, k.*
              from name n cross join unnest($5) p(priority) cross join lateral (
                select m.lo, m.hi, m.pending from _skip_map m
                 where m.queue = $1 and m.group_key = n.group_key and m.priority = p.priority order by m.n desc limit 1) k),
        -- What was committed since a map was written is elsewhere than the map says: it is looked for by its transaction. Workers are
        -- among those, and wrote nothing. Of one that wrote much the map says too little: then all is walked, with what was taken.
        ended as (select x from (select distinct unnest(m.pending) as x from map m) e where pg_visible_in_snapshot(e.x, pg_current_snapshot())),
        late as materialized (select e.x, t.* from ended e cross join lateral (%s) t),
        much as materialized (select array(select l.x from late l group by l.x having count(*) > 1000) as xids),
        job as (
            select n.group_key, j.key, j.id, j.created_at, row_number() over (partition by n.group_key) as nth
              from name n cross join much cross join lateral (
                select j.*
                  from unnest($5) p(priority)
                  left join map k on k.group_key = n.group_key and k.priority = p.priority and not k.pending && much.xids
                 cross join lateral (
                    with r as (select r.lo, r.hi from unnest(coalesce(k.lo, '{0}'), coalesce(k.hi, '{9223372036854775806}')) r(lo, hi)) %s
                    union all
                    select l.key, l.id, l.created_at from late l
                     where l.group_key = n.group_key and l.priority = p.priority and l.x = any (k.pending)
                       and not exists (select from r where l.seq >= r.lo and l.seq <= r.hi)) j
                 limit 1001) j),
        line as (
            select j.group_key, j.key, count(*) as n, min(j.id) as head, min(j.created_at) as oldest
              from job j where j.nth <= 1000 group by j.group_key, j.key),
        ring as (
            select l.group_key, sum(l.may)::bigint as ready, sum(l.n - l.may)::bigint as waiting, min(l.oldest) filter (where l.may > 0) as oldest,
                   exists (select from job j where j.group_key = l.group_key and j.nth > 1000) as more
              from (
                select l.*, case when l.key is null then l.n
                                 when exists (select from _lease e where e.queue = $1 and e.key = l.key)
                                   or exists (select from _scheduled w where w.queue = $1 and w.key = l.key and w.id < l.head and (w.attempt <> 0 or w.due = 'infinity')) then 0
                                 else 1 end as may
                  from line l) l
             group by l.group_key)
        select n.group_key, coalesce(r.ready, 0) + coalesce(o.ready, 0), coalesce(o.running, 0), coalesce(o.delayed, 0),
               coalesce(r.waiting, 0) + coalesce(o.waiting, 0), coalesce(o.dead, 0),
               coalesce(extract(epoch from greatest(interval '0', clock_timestamp() - least(r.oldest, o.oldest))) * 1000000, 0)::bigint, coalesce(r.more, false), f.cut
          from rest f cross join name n left join ring r on r.group_key = n.group_key left join other o on o.group_key = n.group_key
         where r.group_key is not null or o.group_key is not null
         order by n.group_key limit $4$sql$, coalesce(written, $sql$select null::text as group_key, 0::smallint as priority, 0::bigint as seq, null::text as key, 0::bigint as id, null::timestamptz as created_at where false$sql$),
            coalesce(jobs, $sql$select null::text as key, 0::bigint as id, null::timestamptz as created_at where false$sql$))
      using queue, in_ring, after, most, priorities, upto;
end $function$;

-- _pause says in the queue's row that no job is given to anybody, or ends that. It locks the row until the transaction ends.
CREATE OR REPLACE FUNCTION penstock._pause(queue integer, paused boolean)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    update _queue q set paused = _pause.paused where q.id = queue;
    perform _watch(queue);
end $function$;

-- _discard_dead_jobs removes dead letters, and returns how many.
CREATE OR REPLACE FUNCTION penstock._discard_dead_jobs(queue integer, ids bigint[])
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    many bigint;
begin
    delete from _dead_job d where d.queue = _discard_dead_jobs.queue and d.id = any (ids);
    get diagnostics many = row_count;
    return many;
end $function$;

-- _count is what _count_jobs counts, as an array; if most is given, what _count_some does, which reads less.
CREATE OR REPLACE FUNCTION penstock._count(queue integer, most integer)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    c record;
begin
    if most is not null then
        return _count_some(queue, most);
    end if;
    select * into c from _count_jobs(queue);
    return array[c.ready, c.running, c.delayed, c.waiting, c.dead, c.oldest];
end $function$;

-- _retry_dead_jobs has dead letters run again. One that the queue refuses, written by hand, say, stays what it is, and the others
-- run; if it refuses all the error is raised.
CREATE OR REPLACE FUNCTION penstock._retry_dead_jobs(queue integer, ids bigint[])
 RETURNS bigint
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    half constant int := cardinality(ids) / 2;
    many bigint;
begin
    execute format($sql$
        with d as (delete from _dead_job d where d.queue = $1 and d.id = any ($2) returning d.*)
        insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
        select d.id, d.attempt, d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d order by d.id$sql$,
        (select _q(q.name) from _queue q where q.id = queue)) using queue, ids;
    get diagnostics many = row_count;
    return many;
exception when check_violation or invalid_parameter_value or untranslatable_character then
    many := 0;
    if half > 0 then
        for n in 1 .. 2 loop
            begin
                many := many + _retry_dead_jobs(queue, case n when 1 then ids[1:half] else ids[half + 1:] end);
            exception when check_violation or invalid_parameter_value or untranslatable_character then
                null;
            end;
        end loop;
    end if;
    if many = 0 then
        raise;
    end if;
    return many;
end $function$;

-- _used_segment is the first segment of a queue, from the oldest on, that has ever held a job since it was emptied, and is none
-- of done. Jobs that are carried over go to younger ones, so whoever asks until there are no more misses none.
CREATE OR REPLACE FUNCTION penstock._used_segment(queue text, done regclass[])
 RETURNS regclass
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select s.oid::regclass
      from _queue q cross join _segments(q.name) s left join _segment g on g.queue = q.id and g.slot = s.slot
     where q.name = _used_segment.queue and s.oid <> all (done) and pg_relation_size(s.oid) > 0
     order by s.slot = (_ring_position(q.name)).slot, g.turn nulls first limit 1
$function$;

-- _cancel removes jobs wherever they are. Running ones lose their lease. A job has an id of its own, with an index, if it came
-- back or was put off. That of another is its seq, for which an index of its own would cost every enqueue: it is looked up in
-- each group and priority, or, where these are more than a thousand, the segment is read. Of what is leased all is read: two
-- segments at most.
CREATE OR REPLACE FUNCTION penstock._cancel(queue integer, ids bigint[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    name       constant text := (select q.name from _queue q where q.id = queue);
    priorities constant smallint[] := (_queue_flags(name)).priorities;
    group_keys       text[];
    keys       text[] := '{}'; -- one for each job, null without a key
    more       text[];
    segment    regclass;
    done       regclass[] := '{}';
begin
    loop
        segment := _used_segment(name, done);
        exit when segment is null;
        done := done || segment;
        group_keys := _groups_in(segment, queue, 1000);
        if cardinality(group_keys) * cardinality(priorities) * cardinality(ids) <= 1000 then -- so group_keys is the whole list
            execute format('with d as (delete from %1$s t where t.ctid = any (array(
                                select x.ctid from unnest($1) g(group_key) cross join unnest($2) p(priority) cross join unnest($3) i(seq) cross join lateral (
                                    select t.ctid from %1$s t where t.group_key = g.group_key and t.priority = p.priority and t.seq = i.seq and t.id is null for update) x)) returning t.key)
                            select array_agg(d.key) from d', segment) into more using group_keys, priorities, ids;
            keys := keys || more;
            execute format('with d as (delete from %s t where t.id = any ($1) returning t.key) select array_agg(d.key) from d', segment) into more using ids;
            keys := keys || more;
        else
            keys := keys || _cancel_in(segment, ids);
        end if;
    end loop;
    with d as (delete from _scheduled l where l.queue = _cancel.queue and l.id = any (ids) returning l.key)
    select keys || array_agg(d.key) into keys from d;
    perform from _lease l -- in the order of {ack}
      where l.queue = _cancel.queue and (l.id = any (ids) or exists (select from unnest(l.jobs) j where j.id = any (ids)))
      order by array_position(_listed('_lease_slot'), l.slot::int), l.jobs is null, l.lease for update;
    perform _part(queue, array(select j.lease from _lease l cross join lateral unnest(l.jobs) j where l.queue = _cancel.queue and j.id = any (ids)));
    with d as (delete from _lease l where l.queue = _cancel.queue and l.id = any (ids) returning l.key)
    select keys || array_agg(d.key) into keys from d;
    more := array(select distinct k from unnest(keys) k where k is not null);
    if more <> '{}' then
        perform _promote(queue, more);
    end if;
    return cardinality(keys);
end $function$;

-- _cancel_in removes jobs of a segment by reading all of it, and returns their keys, null for one without a key.
CREATE OR REPLACE FUNCTION penstock._cancel_in(segment regclass, ids bigint[])
 RETURNS text[]
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'on'
AS $function$
declare
    keys text[];
begin
    execute format('with d as (delete from %s t where coalesce(t.id, t.seq) = any ($1) returning t.key) select array_agg(d.key) from d', segment) into keys using ids;
    return keys;
end $function$;

-- _groups_in lists those that may have jobs in a segment, and ends after most. At the jobs of one that has a skip map it does not
-- look, because the first ones may be dead; between such groups it goes from one to the next in the index.
CREATE OR REPLACE FUNCTION penstock._groups_in(segment regclass, queue integer, most integer)
 RETURNS text[]
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'off'
 SET jit TO 'off'
AS $function$
declare
    group_keys text[];
begin
    execute format($sql$
        with recursive g(group_key) as (
            select '' collate "C"
            union all
            select case when m.group_key is null then (select t.group_key from %1$s t where t.group_key > g.group_key order by t.group_key limit 1)
                        else coalesce((select t.group_key from %1$s t where t.group_key > g.group_key and t.group_key < m.group_key order by t.group_key limit 1), m.group_key) end
              from g left join lateral (select m.group_key from _skip_map m where m.queue = $1 and m.group_key > g.group_key order by m.group_key limit 1) m on true
             where g.group_key is not null)
        select array_agg(f.group_key) from (select g.group_key from g where g.group_key is not null limit $2 + 1) f$sql$, segment)
       into group_keys using queue, most;
    return group_keys;
end $function$;

-- _count_jobs counts jobs by where they are, in one snapshot, so that each is counted once: it is stable, and so are its
-- statements its caller's. It reads what there is in the ring's segments: one that is empty costs a look at its size. Of the
-- rings that queues share it reads only this one's part, by statements that a session plans once. oldest is in us. Of a key one
-- job may run, unless one runs already, or an earlier one waits to be tried again; the others wait for it. What is due, but was
-- not moved yet, is ready.
CREATE OR REPLACE FUNCTION penstock._count_jobs(queue integer, OUT ready bigint, OUT running bigint, OUT delayed bigint, OUT waiting bigint, OUT dead bigint, OUT oldest bigint)
 RETURNS record
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
 SET jit TO 'off'
AS $function$
declare
    name  constant text := (select q.name from _queue q where q.id = queue);
    ring  constant regclass := _q(name)::regclass;
    keyed constant boolean := (_queue_flags(name)).keyed;
    used  regclass[];
    jobs  text;
    first timestamptz;
    scheduled record;
begin
    loop
        used := array(select i.inhrelid from pg_inherits i where i.inhparent = ring and pg_relation_size(i.inhrelid) > 0);
        jobs := (select string_agg(format(' select t.key, coalesce(t.id, t.seq) as id, t.created_at from %s t', u), ' union all') from unnest(used) u);
        if jobs is null then
            ready := 0;
            waiting := 0;
        elsif not keyed then
            execute format('select count(*), 0, min(t.created_at) from (%s) t', jobs) into ready, waiting, first;
        else
            execute format($sql$
                with line as (select t.key, count(*) as n, min(t.id) as head, min(t.created_at) as oldest from (%s) t group by t.key),
                ring as (
                    select l.n, l.oldest, case
                               when l.key is null then l.n
                               when exists (select from _lease e where e.queue = $1 and e.key = l.key)
                                 or exists (select from _scheduled w where w.queue = $1 and w.key = l.key and w.id < l.head and (w.attempt <> 0 or w.due = 'infinity')) then 0
                               else 1 end as may
                      from line l)
                select coalesce(sum(r.may), 0), coalesce(sum(r.n - r.may), 0), min(r.oldest) filter (where r.may > 0) from ring r$sql$, jobs)
               into ready, waiting, first using queue;
        end if;
        -- Jobs that were carried over to a segment that came into use between the two looks were in none that was read.
        exit when not exists (select from pg_inherits i where i.inhparent = ring and i.inhrelid <> all (used) and pg_relation_size(i.inhrelid) > 0);
    end loop;
    select count(*) filter (where w.due <= clock_timestamp()) as ready,
           count(*) filter (where w.due > clock_timestamp() and w.due < 'infinity') as delayed,
           count(*) filter (where w.due = 'infinity') as waiting,
           min(w.created_at) filter (where w.due <= clock_timestamp()) as oldest
      into scheduled from _scheduled w where w.queue = _count_jobs.queue;
    ready := ready + scheduled.ready;
    delayed := scheduled.delayed;
    waiting := waiting + scheduled.waiting;
    running := (select coalesce(sum(coalesce(256 - bit_count(e.done), 1)), 0) from _lease e where e.queue = _count_jobs.queue); -- see _part
    dead := (select count(*) from _dead_job d where d.queue = _count_jobs.queue);
    oldest := coalesce(extract(epoch from greatest(interval '0', clock_timestamp() - least(scheduled.oldest, first))) * 1000000, 0);
end $function$;

-- _count_some counts as _count_jobs does, up to most of each kind, and reads little more than it counts. Of groups with jobs it
-- looks at a thousand; the last figure is 1 if there may be more.
CREATE OR REPLACE FUNCTION penstock._count_some(queue integer, most integer)
 RETURNS bigint[]
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET jit TO 'off'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
AS $function$
declare
    at_once constant int := 50;
    last    text := '';
    n       record;
    ready   bigint := 0;
    waiting bigint := 0;
    oldest  bigint := 0;
    more    boolean := true; -- until all were looked at
begin
    if (most between 1 and 100000) is not true then
        raise exception 'up to % jobs cannot be counted', coalesce(most::text, 'null') using errcode = '22023', hint = 'give 1 to 100000';
    end if;
    for i in 1..20 loop
        select count(*) as groups, coalesce(sum(g.ready), 0)::bigint as ready, coalesce(sum(g.waiting), 0)::bigint as waiting, coalesce(max(g.oldest), 0) as oldest, max(g.group_key collate "C") as last, coalesce(bool_or(g.more), false) as more
          into n from _count_groups(queue, last, at_once, most) g;
        ready := ready + n.ready;
        waiting := waiting + n.waiting;
        oldest := greatest(oldest, n.oldest);
        if n.groups < at_once and not n.more then
            more := false;
            exit;
        end if;
        exit when n.groups < at_once or ready >= most;
        last := n.last;
    end loop;
    return array[least(ready, most),
        (select least(coalesce(sum(coalesce(256 - bit_count(x.done), 1)), 0), most) from (select e.done from _lease e where e.queue = _count_some.queue limit most) x),
        (select count(*) from (select from _scheduled w where w.queue = _count_some.queue and w.due > clock_timestamp() and w.due < 'infinity' limit most) x),
        least(waiting, most),
        (select count(*) from (select from _dead_job d where d.queue = _count_some.queue limit most) x),
        oldest, more::int];
end $function$;

-- _queue_named returns a queue, or raises 42P01.
CREATE OR REPLACE FUNCTION penstock._queue_named(queue text)
 RETURNS penstock._queue
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q _queue;
begin
    select * into q from _queue x where x.name = queue;
    if not found then
        raise exception 'there is no queue %', coalesce(quote_literal(queue), 'null')
        using errcode = '42P01', hint = 'create it with: penstock queue create ' || coalesce(quote_literal(queue), 'NAME');
    end if;
    return q;
end $function$;

-- Changes settings of a queue; null leaves one as it is, and max_running 0 lifts the limit. keep_done is for how long jobs that
-- are done are kept, as far as they take no more than keep_done_bytes; 0 keeps none. Errors: 42P01, 22023.
CREATE OR REPLACE FUNCTION penstock.set_queue(name text, max_attempts integer DEFAULT NULL::integer, max_running integer DEFAULT NULL::integer, dedup_window interval DEFAULT NULL::interval, keep_done interval DEFAULT NULL::interval, keep_done_bytes bigint DEFAULT NULL::bigint)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q _queue := _queue_named(name);
begin
    if max_attempts < 1 then
        raise exception 'max_attempts is %, expected at least 1', max_attempts using errcode = '22023', hint = 'with 1 a job that fails is a dead letter at once';
    elsif max_running < 0 then
        raise exception 'max_running is %, expected at least 0', max_running using errcode = '22023', hint = '0 means no limit; pause_queue stops a queue';
    elsif dedup_window <= interval '0' or dedup_window > interval '1000 years' then
        raise exception 'dedup_window is %, expected more than nothing and at most 1000 years', dedup_window using errcode = '22023', hint = 'for example interval ''1 hour''';
    elsif keep_done < interval '0' or keep_done > interval '1000 years' then
        raise exception 'keep_done is %, expected nothing to 1000 years', keep_done using errcode = '22023', hint = 'for example interval ''1 day''; interval ''0'' keeps nothing';
    elsif keep_done_bytes < 1048576 then
        raise exception 'keep_done_bytes is %, expected at least 1048576', keep_done_bytes using errcode = '22023', hint = 'keep_done interval ''0'' keeps nothing';
    end if;
    if keep_done is not null then
        perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0); -- as whoever makes functions
    end if;
    update _queue x set max_attempts = coalesce(set_queue.max_attempts, x.max_attempts),
                        max_running  = nullif(coalesce(set_queue.max_running, x.max_running), 0),
                        dedup_window = coalesce(set_queue.dedup_window, x.dedup_window),
                        keep_done    = nullif(coalesce(set_queue.keep_done, x.keep_done), interval '0'),
                        keep_done_bytes = coalesce(set_queue.keep_done_bytes, x.keep_done_bytes)
     where x.id = q.id
    returning x.* into q;
    perform _watch(q.id);
    if keep_done is not null then -- {ack} and {claim} have it in their texts
        if q.keep_done is not null and q.done_since is null then
            perform _make_history(q);
        end if;
        perform _define(q.name);
        perform _keep_hashes(_functions_of_queue(q.name));
    end if;
end $function$;

-- Removes a queue with its jobs, dead letters and schedules. Error: 42P01.
CREATE OR REPLACE FUNCTION penstock.drop_queue(name text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
 SET lock_timeout TO '50ms'
AS $function$
declare
    q    _queue;
    made text;
begin
    -- Workers lock its segments, its table and its registers in any order. So it has all locks within
    -- moments or gives them back and tries again, and nobody waits for it for long who has one that it wants.
    loop
        begin
            perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0);
            q := _queue_named(name);
            perform _forget_hashes(_functions_of_queue(q.name));
            for made in select f::regprocedure::text from unnest(_functions_of_queue(q.name)) f loop
                execute 'drop function ' || made;
            end loop;
            execute format('drop table %s', _q(q.name));
            execute format('drop table if exists %s', _q(format('_%s.done', q.name)));
            for made in select c.relname from pg_class c
                         where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind = 'S' and starts_with(c.relname::text, '_' || q.name || '.')
                           and position('.' in substr(c.relname::text, length(q.name) + 3)) = 0 loop
                execute format('drop sequence %s', _q(made));
            end loop;
            delete from _lease where queue = q.id;
            delete from _scheduled where queue in (q.id, -q.id);
            delete from _dedup where queue = q.id;
            delete from _queue where id = q.id;
            return;
        exception when lock_not_available then
            perform pg_sleep(0.05 + 0.1 * random());
        end;
    end loop;
end $function$;

-- Lets a role write jobs to one queue and do nothing else, by enqueue or by a plain INSERT of the columns that belong to it.
CREATE OR REPLACE FUNCTION penstock.grant_enqueuer(queue text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q _queue := _queue_named(queue);
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant insert (key, group_key, priority, headers, payload) on table %s to %I', _q(q.name), role);
    execute format('grant usage on sequence %s to %I', _q(format('_%s.seq', q.name)), role);
    execute format('grant select on sequence %s, %s to %I', _q(format('_%s.ring', q.name)), _q(format('_%s.flags', q.name)), role);
    perform _grant_own(q.name, '{enqueue,enqueue_many,flags}', role);
end $function$;

-- Lets a role run the jobs of one queue, and do its maintenance. It can neither enqueue nor read what it has not claimed.
CREATE OR REPLACE FUNCTION penstock.grant_worker(queue text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q _queue := _queue_named(queue);
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant select on sequence %s to %I', _q(format('_%s.maintained', q.name)), role);
    execute format('grant execute on function %s() to %I', _q('dequeue_' || q.name), role);
    perform _grant_own(q.name, '{take,claim,ack,ready,extend,report,release,fail,maintain}', role);
end $function$;

-- Lets a role look after one queue: its status and its dead letters, with their payloads; pause and resume it, cancel jobs, retry
-- and discard dead letters. It can neither enqueue nor run jobs, nor change settings. The names and settings of other queues it
-- sees.
CREATE OR REPLACE FUNCTION penstock.grant_operator(queue text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q _queue := _queue_named(queue);
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant select on table _migration, _queue, _dead_job to %I', role);
    execute format('grant select on sequence %s to %I', _q(format('_%s.ring', q.name)), role);
    execute format('grant execute on function _segments(text) to %I', role);
    perform _grant_own(q.name, '{pause,cancel,retry_dead,discard_dead,count,count_groups,done_jobs}', role);
end $function$;

-- _register is what one of a queue's registers holds.
CREATE OR REPLACE FUNCTION penstock._register(queue text, name text)
 RETURNS bigint
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select pg_sequence_last_value(_q(format('_%s.%s', queue, name))::regclass)
$function$;

-- _ring_position is where jobs of a queue are written to: the segment's slot, and the turn, which grows with each change of what
-- is listed. The register holds turn * 1024 + slot.
CREATE OR REPLACE FUNCTION penstock._ring_position(queue text, OUT turn bigint, OUT slot integer)
 RETURNS record
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select ring / 1024, (ring % 1024)::int from _register(queue, 'ring') ring
$function$;

-- _queue_flags says what a call that takes jobs has to look at. priorities: jobs of these may be there (bit 16 + p of the
-- register). keyed: jobs with keys may be there (bit 32). watched: the queue's row says that it is paused or limits what runs
-- (bits 33 and 34).
CREATE OR REPLACE FUNCTION penstock._queue_flags(queue text, OUT priorities smallint[], OUT keyed boolean, OUT watched boolean)
 RETURNS record
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select array(select p from generate_series(-16, 15) p where flags & (1::bigint << (16 + p)) <> 0), flags & 4294967296 <> 0, flags & 25769803776 <> 0
      from _register(queue, 'flags') flags
$function$;

-- _fast_path_mode is what the register fast_path says: a time in units of 25 ms * 4096 + the mode * 1024 + the segment's slot.
-- Once the time has moved on a call goes by the skip map and writes the register anew.
CREATE OR REPLACE FUNCTION penstock._fast_path_mode(queue text, OUT at timestamp with time zone, OUT mode text, OUT slot integer)
 RETURNS record
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select case when path > 0 then to_timestamp(path / 4096 / 40.0) end,
           case when path = 0 then 'by the skip map' else (array['at the position', 'the first that is free', 'few jobs wait'])[path / 1024 % 4 + 1] end,
           case when path > 0 then (path % 1024)::int end
      from _register(queue, 'fast_path') path
$function$;

-- _seen_end says since when no number was drawn in a queue, as maintenance saw it, and whether a skip map waits for maintenance.
-- The register holds tenths of a second from bit 28 on, 27 bits of the last number, and that flag in bit 0.
CREATE OR REPLACE FUNCTION penstock._seen_end(queue text, OUT since timestamp with time zone, OUT bound_waits boolean)
 RETURNS record
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select case when seen >> 28 > 0 then to_timestamp((seen >> 28) / 10.0) end, seen & 1 <> 0 from _register(queue, 'seen') seen
$function$;

-- _refuse_inboxed raises what is wrong with a message, as a consumer is to read it.
CREATE OR REPLACE FUNCTION penstock._refuse_inboxed(message_id text, previous_id text, key text, headers jsonb, payload bytea)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if message_id is null or message_id = '' then
        raise exception 'the message has no id' using errcode = '22023', hint = 'pass the id that the message carries, for example AMQP message-id';
    elsif octet_length(message_id) > 256 then
        raise exception 'the message id has % bytes, the limit is 256', octet_length(message_id) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(previous_id) > 256 then
        raise exception 'the previous id has % bytes, the limit is 256', octet_length(previous_id) using errcode = '23514', hint = 'pass the header penstock-previous as it came';
    elsif previous_id = message_id then
        raise exception 'message % is its own predecessor', quote_literal(message_id) using errcode = '22023', hint = 'pass the header penstock-previous, or null without one';
    elsif octet_length(key) > 1024 then
        raise exception 'the key has % bytes, the limit is 1024', octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the message has none';
    elsif octet_length(payload) > 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', octet_length(payload) using errcode = '23514', hint = 'hold a reference to it';
    elsif jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers are a JSON %, expected an object', jsonb_typeof(headers) using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
    end if;
end $function$;

-- _check_keep raises an error for a time that an inbox cannot keep ids.
CREATE OR REPLACE FUNCTION penstock._check_keep(keep interval)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if (keep between interval '1 minute' and interval '10 years') is not true then
        raise exception 'keep is %, expected 1 minute to 10 years', coalesce(keep::text, 'null')
        using errcode = '22023', hint = 'give the longest time after which a message may come again, for example interval ''7 days''';
    end if;
end $function$;

-- _wants_read_committed is for those who take a lock and then look.
CREATE OR REPLACE FUNCTION penstock._wants_read_committed()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'order is kept at the isolation level read committed, this transaction is %', current_setting('transaction_isolation')
        using errcode = '25001', hint = 'begin it with: begin isolation level read committed';
    end if;
end $function$;

-- _inbox_id_functions is the text of a consumer's own functions about ids. _define_inbox says what stands in braces.
CREATE OR REPLACE FUNCTION penstock._inbox_id_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {enter} returns the ring's register. From then on until its end the transaction holds
-- the turn's lock, in shared form, and a turn settles only when nobody holds the lock of
-- the one before.
create or replace function {enter}() returns bigint
language plpgsql volatile as $fn$
declare
    ring bigint := pg_sequence_last_value({ring});
    now  bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared({class}, {id} * 4 + (ring / 2 % 4)::int);
        now := pg_sequence_last_value({ring});
        exit when now / 2 = ring / 2;
        ring := now;
    end loop;
    return now;
end $fn$;

-- {see} notes an id and says whether it is new. In the turns that decide, it is written,
-- and the unique index makes whoever comes second wait for the first. What the
-- turns before them have is committed since long: there it is enough to look, if the
-- statement's snapshot is of now.
create or replace function {see}(in_id text, ring bigint) returns boolean
language plpgsql volatile as $fn$
declare
    turn    constant bigint := ring / 2;
    moving  constant bigint := ring % 2;
    oldest  constant bigint := turn - 2 - moving;
    decides constant bigint := case when current_setting('transaction_isolation') = 'read committed' then turn - moving else oldest end;
begin
    for t in oldest .. decides - 1 loop
        {each: perform from {seen} s where s.id = in_id;}
        if found then
            return false;
        end if;
    end loop;
    for t in decides .. turn loop
        {each: insert into {seen} (id) values (in_id) on conflict do nothing;}
        if not found then
            return false;
        end if;
    end loop;
    return true;
end $fn$;

-- {received} says whether an id was received.
create or replace function {received}(in_id text, ring bigint) returns boolean
language plpgsql volatile as $fn$
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: perform from {seen} s where s.id = in_id;}
        if found then
            return true;
        end if;
    end loop;
    return false;
end $fn$;

-- {first} is inbox for this consumer.
create or replace function {first}(message_id text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
begin
    if (message_id <> '' and octet_length(message_id) <= 256) is not true then
        perform {schema}._refuse_inboxed(message_id, null, null, null, '');
    end if;
    if {is_due} then
        perform {maintain}(false);
    end if;
    return {see}(message_id, {enter}());
end $fn$;

-- {first_of} is inbox_many. Ids are written in one order, so that two calls do not wait
-- for each other.
create or replace function {first_of}(ids text[]) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    ring    bigint;
    turn    bigint;
    oldest  bigint;
    decides bigint;
    bad     text;
    fresh   text[];
begin
    for bad in select i from unnest(ids) i where (i <> '' and octet_length(i) <= 256) is not true loop
        perform {schema}._refuse_inboxed(bad, null, null, null, '');
    end loop;
    if {is_due} then
        perform {maintain}(false);
    end if;
    ring := {enter}();
    turn := ring / 2;
    oldest := turn - 2 - ring % 2;
    decides := case when current_setting('transaction_isolation') = 'read committed' then turn - ring % 2 else oldest end;
    fresh := array(select distinct i collate "C" from unnest(ids) i order by 1);
    for t in oldest .. decides - 1 loop
        {each: fresh := array(select i from unnest(fresh) with ordinality u(i, o)
                               where not exists (select from {seen} s where s.id = i) order by o);}
    end loop;
    for t in decides .. turn loop
        {each: with new as (insert into {seen} (id) select i from unnest(fresh) with ordinality u(i, o) order by o on conflict do nothing returning id)
               select coalesce(array_agg(id order by id), '{}') into fresh from new;}
    end loop;
    return query select i from unnest(ids) with ordinality u(i, o) join unnest(fresh) f on f = i group by i order by min(o);
end $fn$;

$$ $function$;

-- _inbox_order_functions is the text of a consumer's own functions about order.
CREATE OR REPLACE FUNCTION penstock._inbox_order_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {in_order} is inbox_in_order. The key's lock comes first: whoever has it sees all that
-- others of the key have done, and the register after it.
create or replace function {in_order}(in_key text, in_id text, in_previous text, in_headers jsonb, in_payload bytea, wait interval) returns setof {schema}.inboxed
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    ring    bigint;
    turn    bigint;
    missing text;
    due_at  timestamptz;
    one     {schema}.inboxed;
begin
    if (in_id <> '' and octet_length(in_id) <= 256 and octet_length(in_payload) <= 67108864 and (in_headers is null or jsonb_typeof(in_headers) = 'object')
        and (in_key is null or octet_length(in_key) <= 1024) and (in_previous is null or octet_length(in_previous) <= 256 and in_previous <> in_id)) is not true then
        perform {schema}._refuse_inboxed(in_id, in_previous, in_key, in_headers, in_payload);
    end if;
    if wait is null or wait < interval '0' or wait > (select keep / 2 from {schema}._inbox where id = {id}) then
        raise exception 'wait is %, expected nothing to half of what the inbox keeps', coalesce(wait::text, 'null')
        using errcode = '22023', hint = 'for example interval ''30 s''; set_inbox changes what the inbox keeps';
    end if;
    perform {schema}._wants_read_committed();
    if in_key <> '' then
        perform pg_advisory_xact_lock(hashtextextended(in_key, {key_seed}));
    end if;
    if {is_due} then
        perform {maintain}(false);
    end if;
    ring := {enter}();
    turn := ring / 2;
    if not {see}(in_id, ring) then
        return;
    end if;
    if in_key <> '' and in_previous <> '' then
        if not {received}(in_previous, ring) then
            if {reported}(in_previous, ring) then
                missing := in_previous;
            else
                due_at := clock_timestamp() + wait;
            end if;
        elsif {held_after}(in_previous, ring) is not null then
            due_at := clock_timestamp() + wait;
        end if;
    end if;
    if due_at is not null then
        if pg_sequence_last_value({holds}) = 0 then
            perform setval({holds}, 1);
        end if;
        perform {enter_holding}();
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value({candidate}) / 1000.0)); -- this one first
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value({low}) / 1000.0));
        for t in turn .. turn loop
            {each: insert into {held} (id, previous, key, due, headers, payload) values (in_id, in_previous, in_key, due_at, in_headers, in_payload);}
        end loop;
        return;
    end if;
    one := row(in_id, in_key, in_headers, in_payload, missing is not null, missing, false);
    if in_key <> '' then
        one.late := {reported}(in_id, ring);
        return query select * from {release}(one, in_previous, ring);
    else
        return next one;
    end if;
end $fn$;

-- {release} hands over a message, then what was held for it, and what was held for that. Gaps part a key; known are the last messages of its
-- parts, and the last of them is its head. What follows another one is late, and leaves the head where it is; so is and does what comes behind
-- a gap if its id, UID-SEQ-TIME of an outbox, tells that it was written before the head. Of other ids only the messages between two parts tell
-- which one is older, should they come: the part that a reported message follows goes before what was handed over in its place.
-- See internal/inorder.
create or replace function {release}(one {schema}.inboxed, in_previous text, ring bigint) returns setof {schema}.inboxed
language plpgsql volatile as $fn$
declare
    in_key   constant text := one.key;
    made     constant text := '^([^-]+)-([0-9]+)-([0-9a-z]{10})$'; -- until 2085
    previous text := coalesce(in_previous, '');
    step     {schema}.inboxed[] := array[one];
    part     {schema}.inboxed[];
    ends     text[];
    parts    text[];
    was      text[];
    head     text[] collate "C";
    this     text[] collate "C";
    instead  text;
    at       int;
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select array_append(h.behind, h.id) into parts from {heads} h where h.key = in_key order by h.n desc limit 1;}
        exit when parts is not null;
    end loop;
    was := parts;
    loop
        ends := '{}';
        foreach one in array step loop
            if previous is null then -- it was held
                previous := one.missing;
                one.missing := null;
            end if;
            at := array_position(parts, previous);
            if one.late then
                instead := null;
                for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
                    exit when at is null or instead is not null;
                    {each: select coalesce(g.next, one.message_id) into instead from {gaps} g where g.id = one.message_id;}
                end loop;
                if instead <> one.message_id and cardinality(parts) > 1 then
                    parts := parts[1:at - 1] || parts[at + 1:];
                elsif instead is not null then
                    parts[at] := instead;
                end if;
            elsif parts is null or previous = '' or at = cardinality(parts) then
                parts := parts[1:cardinality(parts) - 1] || one.message_id;
            elsif one.gap then
                head := regexp_match(parts[cardinality(parts)], made);
                this := regexp_match(one.message_id, made);
                if this[1] = head[1] and (length(this[2]), this[2]) < (length(head[2]), head[2]) and this[3] <= head[3] then
                    one.late := true;
                elsif this[1] = head[1] and (length(this[2]), this[2]) > (length(head[2]), head[2]) and this[3] >= head[3] then
                    parts[cardinality(parts)] := one.message_id;
                else
                    parts := parts[cardinality(parts) - 6:] || one.message_id; -- eight at most
                end if;
            else
                one.late := true;
                if at is not null then
                    parts[at] := one.message_id;
                end if;
            end if;
            previous := null;
            ends := ends || one.message_id;
            return next one;
        end loop;
        exit when cardinality(ends) = 0 or pg_sequence_last_value({holds}) is distinct from 1;
        step := '{}';
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: with d as (delete from {held} h where h.previous = any (ends) returning h.*)
                   select array_agg(row(d.id, d.key, d.headers, d.payload, false, d.previous, {reported}(d.id, ring))::{schema}.inboxed order by d.due) into part from d;}
            step := step || part;
        end loop;
    end loop;
    if parts is distinct from was then
        for t in ring / 2 .. ring / 2 loop
            {each: insert into {heads} (key, id, behind) values (in_key, parts[cardinality(parts)], nullif(parts[1:cardinality(parts) - 1], '{}'));}
        end loop;
    end if;
end $fn$;

-- {due} is inbox_due: of up to n keys whose wait is over, what is held from the missing
-- message on, but for the keys in passing_over. A key that another transaction has is left to
-- that one, or to the next call.
create or replace function {due}(n int, passing_over text[]) returns setof {schema}.inboxed
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    ring  bigint;
    low   timestamptz;
    now   constant timestamptz := clock_timestamp();
    ids   text[] := '{}';
    keys  text[] := '{}';
    early record;
    root  text;
    prior text;
    above text;
    mark  text;
    steps int;
    todo  int := n;
    one   {schema}.inboxed;
begin
    if (n between 1 and 1000) is not true then
        raise exception 'n is %, expected 1 to 1000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call inbox_due again for more';
    end if;
    perform {schema}._wants_read_committed();
    if {is_due} then
        perform {maintain}(false);
    end if;
    if pg_sequence_last_value({holds}) = 0 then
        return;
    end if;
    perform {advance}();
    ring := {enter}();
    low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select coalesce(array_agg(h.id order by h.due), '{}') as ids, coalesce(array_agg(h.key order by h.due), '{}') as keys into early
                 from (select h.id, h.key, h.due from {held} h where h.due >= low and h.due <= now and h.key <> all (coalesce(passing_over, '{}')) order by h.due limit n * 4 + 64) h;}
        ids := ids || early.ids;
        keys := keys || early.keys;
    end loop;
    for i in 1 .. cardinality(ids) loop
        exit when todo = 0;
        continue when not pg_try_advisory_xact_lock(hashtextextended(keys[i], {key_seed}));
        root := ids[i];
        prior := {held_after}(root, ring); -- in a statement that began under the lock
        continue when prior is null;       -- it was released meanwhile
        mark := root;
        steps := 0;
        loop -- up to what waits for nothing that is held; a circle, which no outbox makes, is cut somewhere
            above := {held_after}(prior, ring);
            exit when above is null or prior = mark;
            root := prior;
            prior := above;
            steps := steps + 1;
            if steps & (steps - 1) = 0 then
                mark := root;
            end if;
        end loop;
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: delete from {held} h where h.id = root
                   returning h.id, h.key, h.headers, h.payload, false, null, false into one;}
            exit when one.message_id is not null;
        end loop;
        continue when one.message_id is null; -- ids of one key that were used for another
        one.late := {reported}(root, ring);
        if not {received}(prior, ring) then
            one.gap := true;
            one.missing := prior;
            for t in ring / 2 .. ring / 2 loop
                {each: insert into {gaps} as g (id, key, next) values (prior, one.key, one.message_id)
                           on conflict (id) do update set next = excluded.next where g.next is null;}
            end loop;
        end if;
        return query select * from {release}(one, prior, ring);
        todo := todo - 1;
    end loop;
end $fn$;

-- {reported} says whether a message was waited for in vain, or discarded.
create or replace function {reported}(in_id text, ring bigint) returns boolean
language plpgsql volatile as $fn$
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: perform from {gaps} g where g.id = in_id;}
        if found then
            return true;
        end if;
    end loop;
    return false;
end $fn$;

-- {held_after} is the predecessor that a held message waits for, null if the id is not held.
create or replace function {held_after}(in_id text, ring bigint) returns text
language plpgsql volatile as $fn$
declare
    found_id text;
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select h.previous into found_id from {held} h where h.id = in_id;}
        exit when found_id is not null;
    end loop;
    return found_id;
end $fn$;

$$ $function$;

-- _inbox_maintenance_functions is the text of a consumer's own functions that do maintenance.
CREATE OR REPLACE FUNCTION penstock._inbox_maintenance_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {maintain} turns the ring: a call does it now and then, before it does anything else. It
-- moves registers, which a rollback does not undo, and truncates what is out of its
-- window, which nobody looks into any more.
create or replace function {maintain}(force boolean) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$
declare
    now_ms  constant bigint := extract(epoch from clock_timestamp()) * 1000;
    half_ms bigint;
    ring    bigint;
    turn    bigint;
    low     timestamptz;
    spare   int;
    rest    boolean;
    wait_ms bigint;
begin
    if not force and not {is_due} or current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    if not pg_try_advisory_xact_lock({class}, -{id}) then
        return;
    end if;
    if pg_sequence_last_value({since}) > now_ms then -- the clock was ahead
        perform setval({since}, now_ms);
    end if;
    if pg_sequence_last_value({low}) > now_ms then -- what is held from now on is due before that
        perform setval({low}, 0);
    end if;
    if pg_sequence_last_value({holds}) = 1 then
        perform {advance}();
    end if;
    half_ms := (select extract(epoch from keep) * 500 from {schema}._inbox where id = {id});
    wait_ms := least(half_ms / 8, 10000);
    ring := pg_sequence_last_value({ring});
    turn := ring / 2;
    spare := (turn + 1) % 4;
    if ring % 2 = 1 then
        if {is_locked}({class}, {id} * 4 + ((turn - 1) % 4)::int) then
            wait_ms := least(wait_ms, 1000);
        else
            perform setval({since}, now_ms);
            perform setval({ring}, turn * 2);
        end if;
    elsif not {is_empty}(spare) then
        perform {empty}(spare);
    elsif now_ms - pg_sequence_last_value({since}) >= half_ms then
        low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
        for t in turn - 2 .. turn - 2 loop -- a message that is held keeps its id known
            {each: rest := exists (select from {held} h where h.due >= low limit 1);}
        end loop;
        if not rest then
            perform setval({ring}, (turn + 1) * 2 + 1);
            wait_ms := least(wait_ms, 1000);
        end if;
    end if;
    perform setval({next}, now_ms + wait_ms);
end $fn$;

-- {is_locked} says whether a transaction, this one included, has an advisory lock.
create or replace function {is_locked}(class int, key int) returns boolean
language sql volatile as $fn$
    select exists (select from pg_locks l
                    where l.locktype = 'advisory' and l.objsubid = 2 and l.classid = $1::oid and l.objid = $2::oid
                      and l.database = (select d.oid from pg_database d where d.datname = current_database()))
$fn$;

-- {is_empty} says whether a slot's tables take no space. It looks at sizes and opens none of them.
create or replace function {is_empty}(slot int) returns boolean
language plpgsql volatile as $fn$
begin
    for t in slot .. slot loop
        {each: return pg_relation_size({seen_name}::regclass) + pg_relation_size({held_name}::regclass)
                   + pg_relation_size({heads_name}::regclass) + pg_relation_size({gaps_name}::regclass) = 0;}
    end loop;
end $fn$;

-- {empty} truncates a slot's tables, if it has their locks within 20 ms. They are out of the window, so all that is in them may go.
create or replace function {empty}(slot int) returns void
language plpgsql volatile set lock_timeout = '20ms' as $fn$
begin
    for t in slot .. slot loop
        {each: truncate table {seen}, {held}, {heads}, {gaps};}
    end loop;
exception when lock_not_available or object_in_use then
    null; -- someone reads there: the next maintenance tries again
end $fn$;

-- {enter_holding} is {enter} for the transactions that hold a message back, which come
-- in epochs.
create or replace function {enter_holding}() returns void
language plpgsql volatile as $fn$
declare
    epoch bigint := pg_sequence_last_value({epoch});
    now   bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared({holding_class}, {id} * 2 + (epoch % 2)::int);
        now := pg_sequence_last_value({epoch});
        exit when now = epoch;
        epoch := now;
    end loop;
end $fn$;

-- {advance} moves low, below which no held message is due, visible or not: dead rows
-- below it are not walked over. A candidate is noted, then an epoch begins. Whoever
-- holds a message in it has read the candidate, and is due no earlier. Once those of the
-- epoch before have ended, what is due before the candidate is visible.
create or replace function {advance}() returns void
language plpgsql volatile as $fn$
declare
    now_ms    constant bigint := extract(epoch from clock_timestamp()) * 1000;
    epoch     bigint;
    ring      bigint;
    low       timestamptz;
    earliest  timestamptz;
    least_due timestamptz;
begin
    if not pg_try_advisory_xact_lock({class}, -{id}) then
        return;
    end if;
    epoch := pg_sequence_last_value({epoch});
    if pg_sequence_last_value({candidate}) = 0 then
        if now_ms - pg_sequence_last_value({low}) < 1000 then
            return;
        end if;
        perform setval({candidate}, now_ms);
        epoch := epoch + 1;
        perform setval({epoch}, epoch);
    end if;
    if {is_locked}({holding_class}, {id} * 2 + ((epoch - 1) % 2)::int) then
        return;
    end if;
    low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    least_due := to_timestamp(pg_sequence_last_value({candidate}) / 1000.0);
    ring := {enter}();
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select h.due into earliest from {held} h where h.due >= low order by h.due limit 1;}
        least_due := least(least_due, earliest);
    end loop;
    perform setval({low}, greatest(pg_sequence_last_value({low}), floor(extract(epoch from least_due) * 1000)::bigint - 1));
    perform setval({candidate}, 0);
end $fn$;

$$ $function$;

-- _inbox_operator_functions is the text of a consumer's own functions for people.
CREATE OR REPLACE FUNCTION penstock._inbox_operator_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {status} is one row of inboxes(). It counts by reading what is held and reported.
create or replace function {status}(out bytes bigint, out segment_bytes bigint[], out current_segment int, out held bigint, out held_bytes bigint, out next_gap timestamptz, out gaps bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$
declare
    ring constant bigint := pg_sequence_last_value({ring});
    low  constant timestamptz := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    part record;
begin
    bytes := 0;
    segment_bytes := '{}';
    current_segment := ring / 2 % 4;
    held := 0;
    held_bytes := 0;
    gaps := 0;
    for t in 0 .. 3 loop
        {each: select pg_total_relation_size({seen_name}::regclass) + pg_total_relation_size({held_name}::regclass) + pg_total_relation_size({heads_name}::regclass)
                    + pg_total_relation_size({gaps_name}::regclass) as bytes into part;}
        segment_bytes := segment_bytes || part.bytes;
        bytes := bytes + part.bytes;
    end loop;
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select count(*) as held, coalesce(sum(octet_length(h.payload)), 0) as bytes, min(h.due) as due into part from {held} h where h.due >= low;}
        held := held + part.held;
        held_bytes := held_bytes + part.bytes;
        next_gap := least(next_gap, part.due);
        {each: select count(*) as gaps into part from {gaps} g;}
        gaps := gaps + part.gaps;
    end loop;
end $fn$;

-- {list_held} is inbox_held.
create or replace function {list_held}(of_key text, of_previous text, of_id text, n int) returns setof {schema}.held_message
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$
declare
    ring constant bigint := pg_sequence_last_value({ring});
    low  constant timestamptz := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    all_of {schema}.held_message[] := '{}';
    part   {schema}.held_message[];
begin
    perform {schema}._check_rows(n);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select coalesce(array_agg(row(h.id, h.key, h.previous, null, h.at, h.due, h.headers, octet_length(h.payload),
                                             case when of_id is not null then h.payload end)::{schema}.held_message), '{}') into part
                 from (select h.* from {held} h
                        where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                        order by h.due limit n) h;}
        all_of := all_of || part;
    end loop;
    return query select h.message_id, h.key, h.previous_id, {held_after}(h.previous_id, ring) is not null, h.held_at, h.due, h.headers, h.payload_bytes, h.payload
                   from (select * from unnest(all_of) order by due limit n) h order by h.due;
end $fn$;

-- {list_gaps} is inbox_gaps.
create or replace function {list_gaps}(n int) returns setof {schema}.inbox_gap
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$
declare
    ring constant bigint := pg_sequence_last_value({ring});
    all_of {schema}.inbox_gap[] := '{}';
    part   {schema}.inbox_gap[];
begin
    perform {schema}._check_rows(n);
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select coalesce(array_agg(row(g.id, g.key, g.next, g.at, g.discarded, null)::{schema}.inbox_gap), '{}') into part
                 from (select g.* from {gaps} g order by g.at desc limit n) g;}
        all_of := all_of || part;
    end loop;
    return query select g.missing, g.key, g.followed_by, g.reported_at, g.discarded, {received}(g.missing, ring)
                   from (select * from unnest(all_of) order by reported_at desc limit n) g order by g.reported_at desc;
end $fn$;

-- {let_go} is inbox_release: it makes messages due, in the order in which they would be,
-- under the same rule as those that are held anew. One that is being handed over just
-- now is left to that.
create or replace function {let_go}(of_key text, of_previous text, of_id text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$
declare
    ring  bigint;
    low   timestamptz;
    base  timestamptz;
    let   bigint := 0;
    part  bigint;
begin
    perform {schema}._wants_read_committed();
    if pg_sequence_last_value({holds}) = 0 then
        return 0;
    end if;
    ring := {enter}();
    perform {enter_holding}();
    low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    base := greatest(clock_timestamp(), to_timestamp(pg_sequence_last_value({candidate}) / 1000.0), low);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: with chosen as (
                   select h.id, row_number() over (order by h.due) as n
                     from (select h.id, h.due from {held} h
                            where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                              for update skip locked) h),
               due as (update {held} h set due = least(h.due, base + (let + c.n) * interval '1 microsecond') from chosen c where h.id = c.id returning h.id)
               select count(*) into part from due;}
        let := let + part;
    end loop;
    return let;
end $fn$;

-- {discard} is inbox_discard: as if the messages had never come. Under the key's lock, so
-- that nobody is handing them over or about to wait for them.
create or replace function {discard}(ids text[]) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$
declare
    ring bigint;
    one  text;
    k    text;
    gone text;
begin
    perform {schema}._wants_read_committed();
    foreach one in array coalesce(ids, '{}') loop
        k := (select h.key from {list_held}(null, null, one, 1) h);
        continue when k is null;
        perform pg_advisory_xact_lock(hashtextextended(k, {key_seed}));
        ring := {enter}();
        gone := null;
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: delete from {held} h where h.id = one returning h.id into gone;}
            exit when gone is not null;
        end loop;
        continue when gone is null; -- handed over meanwhile
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: delete from {seen} s where s.id = one;}
        end loop;
        for t in ring / 2 .. ring / 2 loop
            {each: insert into {gaps} (id, key, discarded) values (one, k, true) on conflict (id) do update set at = excluded.at, discarded = true;}
        end loop;
        perform {let_go}(null, one, null);
        return next one;
    end loop;
end $fn$;

$$ $function$;

-- _check_rows raises an error for a number of rows that is too large or too small.
CREATE OR REPLACE FUNCTION penstock._check_rows(n integer)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
begin
    if (n between 1 and 10000) is not true then
        raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'it is the most rows that are returned';
    end if;
end $function$;

-- Describes every inbox, or those that the role looks after: its bytes on disk, the messages that it holds back, and its gaps.
-- next_gap is when the first of them is handed over in any case.
CREATE OR REPLACE FUNCTION penstock.inboxes()
 RETURNS TABLE(consumer text, keep interval, bytes bigint, held bigint, held_bytes bigint, next_gap timestamp with time zone, gaps bigint, segment_bytes bigint[], current_segment integer)
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    i _inbox;
begin
    for i in select * from _inbox x
              where has_function_privilege(to_regprocedure(_inbox_name(x.id, 'status') || '()'), 'execute') order by x.consumer collate "C" loop
        consumer := i.consumer;
        keep := i.keep;
        execute format('select bytes, held, held_bytes, next_gap, gaps, segment_bytes, current_segment from %s()', _inbox_name(i.id, 'status'))
           into bytes, held, held_bytes, next_gap, gaps, segment_bytes, current_segment;
        return next;
    end loop;
end $function$;

-- Lets a role look after one inbox: its sizes, what it holds, with payloads, and its gaps; release and discard what is held, and
-- do its maintenance. The names of other inboxes it sees. Error: 42P01.
CREATE OR REPLACE FUNCTION penstock.grant_inbox_operator(consumer text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    i _inbox := _inbox_of(consumer);
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant select on table _migration, _inbox to %I', role);
    execute format('grant execute on function inboxes(), _inbox_name(int, text) to %I', role);
    perform _grant_own('_inbox.' || i.id, '{status,list_held,list_gaps,let_go,discard,maintain}', role);
end $function$;

-- _inbox_of returns the inbox of a consumer, or raises 42P01.
CREATE OR REPLACE FUNCTION penstock._inbox_of(consumer text)
 RETURNS penstock._inbox
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    found_inbox _inbox;
begin
    select * into found_inbox from _inbox i where i.consumer = _inbox_of.consumer;
    if not found then
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = format('create it with: select %s.create_inbox(%s)', quote_ident(current_schema()), coalesce(quote_literal(consumer), 'NAME'));
    end if;
    return found_inbox;
end $function$;

-- Makes an inbox for a consumer. Ids are known for at least keep after the transaction that received them, and for up to half as
-- long again. Errors: 42P07 (duplicate_table) if there is one, 22023, 23514.
CREATE OR REPLACE FUNCTION penstock.create_inbox(consumer text, keep interval DEFAULT '7 days'::interval)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    made     int;
    now_ms   constant bigint := extract(epoch from clock_timestamp()) * 1000;
    register record;
begin
    if (octet_length(consumer) between 1 and 48) is not true then
        raise exception 'the consumer''s name has % bytes, expected 1 to 48', coalesce(octet_length(consumer), 0)
        using errcode = '23514', hint = 'name what consumes, for example ''billing''';
    end if;
    perform _check_keep(keep);
    perform pg_advisory_xact_lock('_inbox'::regclass::oid::int, 0); -- the dispatch functions are made by one at a time
    if exists (select from _inbox i where i.consumer = create_inbox.consumer) then
        raise exception 'the inbox of % exists already', quote_literal(consumer)
        using errcode = '42P07', hint = format('to change how long it keeps ids: select %s.set_inbox(%L, %L)', quote_ident(current_schema()), consumer, keep);
    end if;
    insert into _inbox (consumer, keep) values (consumer, keep) returning id into made;
    -- Sequences used as registers, see create_outbox. since: when the turn settled, in ms;
    -- next: when maintenance is due; holds: 1 once a message was held; low and so on: see advance.
    for register in select * from (values ('ring', 4::bigint * 2), ('since', now_ms), ('next', now_ms), ('holds', 0::bigint),
                                          ('low', now_ms), ('candidate', 0::bigint), ('epoch', 1::bigint)) r(name, value) loop
        execute format('create sequence %s minvalue 0', _inbox_name(made, register.name));
        perform setval(_inbox_name(made, register.name), register.value);
    end loop;
    execute format('create sequence %s', _inbox_name(made, 'n'));
    for slot in 0 .. 3 loop
        execute format('create table %s (id text collate "C" primary key)
                        with (autovacuum_enabled = false)', _inbox_name(made, 'seen.' || slot));
        execute format('create table %1$s (
                            id       text collate "C" primary key,
                            previous text collate "C" not null,
                            key      text not null,
                            at       timestamptz not null default clock_timestamp(),
                            due      timestamptz not null,
                            headers  jsonb,
                            payload  bytea not null)', _inbox_name(made, 'held.' || slot)); -- vacuumed: rows are deleted as they are released
        execute format('create table %s (
                            key    text collate "C" not null,
                            n      bigint not null default nextval(%L),
                            id     text collate "C" not null,
                            behind text[] collate "C",
                            primary key (key, n))
                        with (autovacuum_enabled = false)', _inbox_name(made, 'heads.' || slot), _inbox_name(made, 'n'));
        execute format('create table %s (
                            id        text collate "C" primary key,
                            key       text not null,
                            next      text collate "C",
                            at        timestamptz not null default clock_timestamp(),
                            discarded boolean not null default false)
                        with (autovacuum_enabled = false)', _inbox_name(made, 'gaps.' || slot));
        execute format('create index on %s (previous)', _inbox_name(made, 'held.' || slot));
        execute format('create index on %s (due)', _inbox_name(made, 'held.' || slot));
    end loop;
    perform _define_inbox(made);
    perform _keep_hashes(array(select p.oid from _own_functions('_inbox.' || made) p));
    perform _dispatch_inboxes();
end $function$;

-- Changes how long ids are known; a longer time holds for what comes after it. Errors: 42P01, 22023.
CREATE OR REPLACE FUNCTION penstock.set_inbox(consumer text, keep interval)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    i _inbox := _inbox_of(consumer);
begin
    perform _check_keep(keep);
    update _inbox x set keep = set_inbox.keep where x.id = i.id;
end $function$;

-- Removes an inbox, with what it holds. Error: 42P01.
CREATE OR REPLACE FUNCTION penstock.drop_inbox(consumer text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    i    _inbox := _inbox_of(consumer);
    made record;
begin
    perform pg_advisory_xact_lock('_inbox'::regclass::oid::int, 0);
    perform _forget_hashes(array(select p.oid from _own_functions('_inbox.' || i.id) p));
    for made in select p.oid::regprocedure as name from _own_functions('_inbox.' || i.id) p loop
        execute format('drop function %s', made.name);
    end loop;
    for made in select c.oid::regclass as name, c.relkind from pg_class c
                 where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relname like format($re$\_\_inbox.%s.%%$re$, i.id) and c.relkind in ('r', 'S')
                 order by c.relkind desc loop -- tables first: their defaults use sequences
        execute format('drop %s %s', case made.relkind when 'r' then 'table' else 'sequence' end, made.name);
    end loop;
    delete from _inbox x where x.id = i.id;
    perform _dispatch_inboxes();
end $function$;

-- Lets a role use one inbox and do nothing else. Error: 42P01.
CREATE OR REPLACE FUNCTION penstock.grant_consumer(consumer text, role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    i _inbox := _inbox_of(consumer);
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    perform _grant_own('_inbox.' || i.id, '{first,first_of,in_order,due,maintain}', role);
end $function$;

-- _inbox_name is the quoted name of a part of an inbox.
CREATE OR REPLACE FUNCTION penstock._inbox_name(id integer, part text)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select _q(format('__inbox.%s.%s', id, part)) $function$;

-- _define_inbox makes the functions of an inbox, or makes them anew. In their texts first and so on are their own names, ring and
-- so on the registers, and {each: ...} stands for a case of the four slots, in which seen, held, heads and gaps are the slot's
-- tables.
CREATE OR REPLACE FUNCTION penstock._define_inbox(id integer)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    text  text := _inbox_id_functions() || _inbox_order_functions() || _inbox_maintenance_functions() || _inbox_operator_functions();
    own   constant text[] := '{enter,enter_holding,is_locked,see,received,reported,held_after,first,first_of,in_order,release,due,advance,maintain,is_empty,empty,
                                     status,list_held,list_gaps,let_go,discard}';
    word  text;
    part  text;
    body  text;
    here  text;
    name  text;
    cases text;
    made  regprocedure;
begin
    loop
        part := substring(text from $re$\{each: (?:[^{}]|\{[a-z_]*\})*\}$re$);
        exit when part is null;
        body := substring(part from 8 for length(part) - 8);
        cases := 'case t % 4';
        for slot in 0 .. 3 loop
            here := body;
            foreach word in array array['seen', 'held', 'heads', 'gaps'] loop
                name := _inbox_name(id, word || '.' || slot);
                here := replace(replace(here, '{' || word || '}', name), '{' || word || '_name}', quote_literal(name));
            end loop;
            cases := cases || format(E'\n        when %s then ', slot) || here;
        end loop;
        text := replace(text, part, cases || E'\n        end case;');
    end loop;
    foreach word in array own loop
        text := replace(text, '{' || word || '}', _inbox_name(id, word));
    end loop;
    -- next is at most ten seconds ahead: further, and the clock was set back.
    text := replace(text, '{is_due}', 'abs(extract(epoch from clock_timestamp()) * 1000 - pg_sequence_last_value({next}) + 5000) > 5000');
    foreach word in array array['ring', 'since', 'next', 'holds', 'low', 'candidate', 'epoch'] loop
        text := replace(text, '{' || word || '}', quote_literal(_inbox_name(id, word)) || '::regclass');
    end loop;
    text := replace(text, '{schema}', quote_ident(current_schema()));
    text := replace(replace(text, '{class}', '1885695598'), '{holding_class}', '1885695599');
    text := replace(text, '{key_seed}', (id + (1::bigint << 40))::text); -- queues use what is below
    text := replace(text, '{id}', id::text);
    execute text;
    for made in select p.oid from _own_functions('_inbox.' || id) p loop
        execute format('revoke execute on function %s from public', made);
    end loop;
end $function$;

-- _dispatch_inboxes makes the functions that take a consumer's name anew: a branch for each inbox, because a dynamic call costs
-- several times a static one.
CREATE OR REPLACE FUNCTION penstock._dispatch_inboxes()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    public_functions constant text[] := array[
        'inbox(consumer text, message_id text) returns boolean', 'return {first}(message_id)',
        'Notes that a consumer receives a message, and says whether it is the first time. Its transaction commits the note with what it does. Errors: 42P01, 22023, 23514.',
        'inbox_many(consumer text, message_ids text[]) returns setof text', 'return query select * from {first_of}(message_ids)',
        'Notes several messages as inbox does, and returns the ids of those that are received for the first time, in their order.',
        'inbox_in_order_bytes(consumer text, key text, message_id text, previous_id text, headers jsonb, payload bytea, wait interval default ''30 s'') returns setof inboxed',
        'return query select * from {in_order}(key, message_id, previous_id, headers, payload, wait)',
        'Receives a message of a key and returns the messages that may be processed now, in order: none if it came before, or came early and is held back for up to wait. Else it is this message, and those that were held for it. Errors: 42P01, 22023, 23514, 25001.',
        'inbox_due(consumer text, n int default 10, passing_over text[] default ''{}'') returns setof inboxed', 'return query select * from {due}(n, passing_over)',
        'Hands over messages that have waited long enough: of up to n keys, the first one and those behind it. The first one has gap, and the id that is missing.',
        'maintain_inbox(consumer text) returns void', 'perform {maintain}(true)',
        'Does at once what calls do now and then: the inbox forgets ids that are out of its window, and gives their space back.',
        'inbox_held(consumer text, key text default null, previous_id text default null, message_id text default null, n int default 100) returns setof held_message',
        'return query select * from {list_held}(key, previous_id, message_id, n)',
        'Lists up to n messages that are held back, those that are due first. The payload comes with it where one message is asked for by its id.',
        'inbox_gaps(consumer text, n int default 100) returns setof inbox_gap', 'return query select * from {list_gaps}(n)',
        'Lists up to n messages that did not come in time or were discarded, the latest first.',
        'inbox_release(consumer text, key text default null, previous_id text default null, message_id text default null) returns bigint',
        'return {let_go}(key, previous_id, message_id)',
        'Makes messages that are held back due now, of a key, of a predecessor, of an id, or all, and returns how many. The next inbox_due hands them over.',
        'inbox_discard(consumer text, message_ids text[]) returns setof text', 'return query select * from {discard}(message_ids)',
        'Discards messages that are held back, as if they had never come, and returns their ids. Messages that wait for them are due now.'];
    branches text;
    word     text;
    names    text[];
begin
    for i in 1 .. cardinality(public_functions) by 3 loop
        word := substring(public_functions[i + 1] from $re$\{(\w+)\}$re$);
        select coalesce(string_agg(format(E'\n    when %L then %s;', x.consumer,
                                          replace(public_functions[i + 1], '{' || word || '}', _inbox_name(x.id, word))), '' order by x.id), '')
          into branches from _inbox x;
        execute format('create or replace function %s language plpgsql volatile as %L', public_functions[i], format($body$
begin
    case consumer
    when null then null;%s
    else
        raise exception 'there is no inbox of %%', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = %L || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $body$, branches, format('its owner creates it with: select %I.create_inbox(', current_schema())));
        execute format('comment on function %I is %L', split_part(public_functions[i], '(', 1), public_functions[i + 2]);
        names := names || split_part(public_functions[i], '(', 1);
    end loop;
    perform _keep_hashes(array(select p.oid from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname = any (names)));
end $function$;

-- Receives a message whose payload is JSON, as UTF-8; else as inbox_in_order_bytes.
CREATE OR REPLACE FUNCTION penstock.inbox_in_order(consumer text, key text, message_id text, previous_id text, headers jsonb, payload jsonb, wait interval DEFAULT '00:00:30'::interval)
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
AS $function$
begin
    return query select * from penstock.inbox_in_order_bytes(consumer, key, message_id, previous_id, headers, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), wait);
end $function$;
-- everybody may execute it

-- Receives a message whose payload is text, as UTF-8; else as inbox_in_order_bytes.
CREATE OR REPLACE FUNCTION penstock.inbox_in_order(consumer text, key text, message_id text, previous_id text, headers jsonb, payload text, wait interval DEFAULT '00:00:30'::interval)
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
AS $function$
begin
    return query select * from penstock.inbox_in_order_bytes(consumer, key, message_id, previous_id, headers, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), wait);
end $function$;
-- everybody may execute it

-- _generated are the functions that a queue has of its own, beside dequeue_NAME: what each job goes through, and what of the rest
-- a role may be granted. All else is there once and takes a queue (docs/decisions/0011).
CREATE OR REPLACE FUNCTION penstock._generated()
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select '{skip_map,busy,ready,take,take_rows,take_keyed,scan,enqueue,enqueue_many,flags,claim,ack,extend,report,release,fail,maintain,pause,cancel,retry_dead,discard_dead,count,count_groups,done_jobs}'::text[]
$function$;

-- _define makes a queue's functions, or makes them anew.
CREATE OR REPLACE FUNCTION penstock._define(queue text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    made text;
begin
    execute _fill(_skip_map_functions() || _take_functions() || _scan_function() || _dequeue_function()
                  || _enqueue_functions() || _lease_functions() || _key_functions() || _group_functions() || _door_functions(), queue);
    for made in select case when p.name = any (_generated()) then format('revoke execute on function %s from public', p.oid::regprocedure)
                            else format('drop function %s', p.oid::regprocedure) end
                  from _own_functions(queue) p loop
        execute made;
    end loop;
    execute format('revoke execute on function %s() from public', _q('dequeue_' || queue));
end $function$;

-- _own_functions are those of one queue, or of one inbox.
CREATE OR REPLACE FUNCTION penstock._own_functions(queue text)
 RETURNS TABLE(oid oid, name text)
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select p.oid, n.name
      from pg_proc p, substr(p.proname::text, length(queue) + 3) n(name)
     where p.pronamespace = quote_ident(current_schema())::regnamespace and position('.' in n.name) = 0
       and p.proname >= ('_' || queue || '.')::name and p.proname < ('_' || queue || '/')::name -- by the index
$function$;

-- _functions_of_queue are a queue's own functions, dequeue_NAME among them.
CREATE OR REPLACE FUNCTION penstock._functions_of_queue(queue text)
 RETURNS oid[]
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select array_remove(array(select p.oid from _own_functions(queue) p) || to_regprocedure(_q('dequeue_' || queue) || '()')::oid, null)
$function$;

-- _grant_own lets a role call some of them.
CREATE OR REPLACE FUNCTION penstock._grant_own(queue text, names text[], role name)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    made text;
begin
    for made in select p.oid::regprocedure::text from _own_functions(queue) p where p.name = any (names) loop
        execute format('grant execute on function %s to %I', made, role);
    end loop;
end $function$;

-- A right to a queue is a right to a function, as PostgreSQL checks it (docs/decisions/0011). What a role may be granted and is
-- not made for each queue has a door there: a function of the queue's own, which runs as the schema's owner and calls what takes
-- a queue, which no role else may. Those of workers are PL/pgSQL, whose plan a session keeps.
CREATE OR REPLACE FUNCTION penstock._door_functions()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {extend} makes leases end by from now, and returns those that were still held, with their new end.
create or replace function {extend}(leases bigint[], by interval) returns table (lease bigint, until timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    return query select * from {schema}._extend({id}, leases, by);
end $fn$;

-- {report} notes what a job says of itself, and returns when its lease ends, null if that is lost.
create or replace function {report}(lease bigint, report jsonb) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    return {schema}._report({id}, lease, report);
end $fn$;

-- {release} gives jobs back, to run again after a while, and returns the leases that were still held.
create or replace function {release}(leases bigint[], after interval) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    return query select {schema}._release({id}, leases, after);
end $fn$;

-- {fail} ends an attempt that failed, see _fail.
create or replace function {fail}(lease bigint, after interval, error text, final boolean) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    return {schema}._fail({id}, lease, after, error, final);
end $fn$;

-- {maintain} does the maintenance of the queue at once, see _maintain.
create or replace function {maintain}() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    perform {schema}._maintain({id}, true);
end $fn$;

-- {pause} pauses the queue, or ends that.
create or replace function {pause}(paused boolean) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._pause({id}, paused) $fn$;

-- {cancel} removes jobs wherever they are, see _cancel. A role that may call it looks after the queue: the policy of _dead_job asks for that.
create or replace function {cancel}(ids bigint[]) returns int
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._cancel({id}, ids) $fn$;

-- {retry_dead} has dead letters run again, and returns how many.
create or replace function {retry_dead}(ids bigint[]) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._retry_dead_jobs({id}, ids) $fn$;

-- {discard_dead} removes dead letters, and returns how many.
create or replace function {discard_dead}(ids bigint[]) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._discard_dead_jobs({id}, ids) $fn$;

-- {count} counts jobs by where they are, see _count.
create or replace function {count}(most int) returns bigint[]
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._count({id}, most) $fn$;

-- {count_groups} counts the jobs of each group, see _count_groups: of what is leased, is to come later or is dead 10,000 each.
create or replace function {count_groups}(after text, most int)
returns table (group_key text, ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest bigint, more boolean)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
    select g.group_key, g.ready, g.running, g.delayed, g.waiting, g.dead, g.oldest, g.more or g.cut from {schema}._count_groups({id}, after, most, 10000) g order by g.group_key
$fn$;

-- {done_jobs} lists what is kept of jobs that are done, see _done_jobs.
create or replace function {done_jobs}(most int, before text, ids bigint[]) returns jsonb
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._done_jobs({id}, most, before, ids) $fn$;

$$ $function$;

-- _qualified says in the text of a function where its operators and functions are, so that it may run with its owner's rights on
-- its caller's search_path. Names are put in afterwards. Qualified operators all bind alike, from left to right: brackets say the
-- rest.
CREATE OR REPLACE FUNCTION penstock._qualified(body text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select regexp_replace(regexp_replace(body,
        $re$ (<=|>=|<|>|=|\+|-|\*|%) $re$, $re$ operator(pg_catalog.\1) $re$, 'g'),
        $re$\m(pg_sequence_last_value|nextval|setval|date_part|clock_timestamp|current_setting)\($re$, $re$pg_catalog.\1($re$, 'g')
$function$;

-- _maintain_if_due has a queue's maintenance done with the commit, now and then; also once the clock was set back.
CREATE OR REPLACE FUNCTION penstock._maintain_if_due()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select _qualified($$
    if pg_catalog.abs((date_part('epoch'::pg_catalog.text, clock_timestamp()) * '1000')::bigint - pg_sequence_last_value({maintained})) >= 250
       and current_setting('transaction_isolation') = 'read committed' then
        insert into {schema}._maintenance (queue) values ({id});
    end if;$$) $function$;

-- _choose is PL/pgSQL that runs one of several texts: the one whose key is the last that is not above what. Keys are in order. Of
-- a hundred it compares with seven, where CASE would with all.
CREATE OR REPLACE FUNCTION penstock._choose(what text, keys integer[], texts text[])
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    half constant int := cardinality(keys) / 2;
begin
    if half = 0 then
        return texts[1];
    end if;
    return format(e'if %s operator(pg_catalog.<) %s then\n%s\nelse\n%s\nend if;', what, keys[half + 1],
                  _choose(what, keys[1:half], texts[1:half]), _choose(what, keys[half + 1:], texts[half + 1:]));
end $function$;

-- _fill makes of a text the functions of a queue: word what the table below says: names, as literals where they are registers {if
-- fifo} ... {end if} only in such a queue: fifo, lifo, kept (which keeps history), not kept {leaf of lease} ... end one of two,
-- for the segment of _lease whose number the variable leaf says; _scheduled, _dedup. Of _skip_map the one to be read {segments
-- here 1024} ... end one for each segment of the queue, of which the variable here says the number, above 1024 Names may hold any
-- of that: they are put in with their braces hidden. In what a session's first call runs, a number may be in quotes, and so takes
-- the type of the operator's other side: to find an operator for two types of which none is made, like bigint % integer, goes
-- over all of that name.
CREATE OR REPLACE FUNCTION penstock._fill(body text, queue text)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
declare
    q        constant _queue := (select q from _queue q where q.name = queue);
    kept     constant boolean := q.keep_done is not null;
    slots    constant int[] := array(select s.slot from _segments(queue) s order by s.slot);
    segments constant text[] := array(select _hidden(_q(format('_%s.%s', queue, s))) from unnest(slots) s);
    parts    text[];
    part     text;
    head     text;
    block    text;
    ends     int;
    word     text;
    what     text;
begin
    if queue ~ '[\n\r]' then -- it would end a comment that it is put into
        body := regexp_replace(body, '--[^\n]*', '', 'g');
    end if;
    parts := string_to_array(body, '{if ');
    body := parts[1];
    foreach part in array parts[2:] loop
        head := split_part(part, '}', 1);
        body := body || case when head = any (array[case when q.lifo then 'lifo' else 'fifo' end, case when kept then 'kept' else 'not kept' end])
                             then substr(split_part(part, '{end if}', 1), length(head) + 2) else '' end
                     || substr(part, position('{end if}' in part) + 8);
    end loop;

    parts := string_to_array(body, '{leaf of ');
    body := parts[1];
    foreach part in array parts[2:] loop
        head := split_part(part, '}', 1);
        ends := position('{end}' in part);
        block := substr(part, length(head) + 3, ends - length(head) - 3);
        body := body || format(e'if %s = 0 then\n%selse\n%send if;', case head when 'skip_map' then 'pg_sequence_last_value({skip_map_slot})' else 'leaf' end,
                               replace(block, '{leaf}', '{schema}._' || head || '_0'), replace(block, '{leaf}', '{schema}._' || head || '_1'))
                     || substr(part, ends + 5);
    end loop;

    if strpos(queue, '$fn$') > 0 then
        body := replace(body, '$fn$', format('$fn%s$', md5(queue)));
    end if;
    for word, what in
        select w.word, case when w.n < 3 then w.what else _hidden(w.what) end
          from (select * from (values
                    (1, 'job', 'coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload'),
                    (1, 'lease_columns', 'queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures' || case when kept then ', claimed_at' else '' end),
                    (1, 'lease_row', '{id}, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''''), t.group_key, t.key, t.headers, t.payload, t.failures' || case when kept then ', until operator(pg_catalog.-) lease' else '' end),
                    -- What is kept of jobs that are done. Around a delete of leases: {with l}delete from ... l {returning} ... {from l}.
                    (0, 'with l', case when kept then 'with l as (' else '' end),
                    (0, 'from l', case when kept then ' from l' else '' end),
                    (0, 'returning', case when kept then 'returning l.*), kept as ({done of one} select {done row}, l.id, l.attempt, l.created_at, l.failures, l.report from l) select' else 'returning' end),
                    (1, 'done several', $sql$insert into {history} (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report, jobs, attempts, created, failed)
                        select l.claimed_at, l.worker, l.group_key, l.priority, l.key,
                               case when count(*) = 1 then min(l.id) end, case when count(*) = 1 then min(l.attempt) end, case when count(*) = 1 then min(l.created_at) end,
                               case when count(*) = 1 then (array_agg(l.failures))[1] end, (array_agg(l.report))[1],
                               case when count(*) > 1 then array_agg(l.id) end, case when count(*) > 1 then array_agg(l.attempt) end, case when count(*) > 1 then array_agg(l.created_at) end,
                               case when count(*) > 1 and count(l.failures) > 0 then array_agg(l.failures) end
                          from (select d.*, row_number() over () / 255 as part, case when d.key is not null or d.report is not null then d.lease end as single from d) l
                         group by l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.single, l.part$sql$),
                    (1, 'done of one', 'insert into {history} (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report)'),
                    (1, 'done', 'insert into {history} (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed)'),
                    (1, 'done row', 'l.claimed_at, l.worker, l.group_key, l.priority, l.key'),
                    (1, 'done jobs', 'select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end'),
                    (3, 'history', _q(format('_%s.done', queue))),
                    (1, 'drawn', 'delete from {segment} t where t.group_key = '''' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = ''0'' and t.key is null returning t.*'),
                    (0, 'next_base', '(nextval({lease_n}) % 34359738368 << 28) | (floor(random() * 524288)::bigint << 9) | 1'),
                    (1, 'nobody', quote_literal(repeat('0', 256)) || '::pg_catalog.bit(256)'),
                    (1, 'leased_job', 'l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until'),
                    (1, 'now', '(pg_catalog.date_part(''epoch''::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) ''40'')::bigint'),
                    (1, 'slots', '{schema}._listed_slots({id}, {lifo}, {ring})'),
                    (1, 'maintain_if_due', _maintain_if_due()),
                    (1, 'maintain_if_due, leasing', replace(_maintain_if_due(), '(queue) values ({id})', '(queue, until) values ({id}, until)')),
                    (1, 'readable many', _readable('keys, group_keys, dedup_keys, headers')),
                    (3, 'lease_table', quote_literal(_q('_lease'::text)) || '::regclass'),
                    (1, 'listed lease', '{schema}._listed({lease_slot})'),
                    (1, 'listed scheduled', '{schema}._listed({scheduled_slot})'),
                    (3, 'dequeue', _q('dequeue_' || queue)),
                    (3, 'raise', _q(format('_%s.flags', queue))),
                    -- What the register of flags says. Bit 16 + p: there are jobs of priority p.
                    (1, 'plain', '65536'), -- of priority 0 only, and nothing else
                    (1, 'keyed', '4294967296'), -- there may be jobs with keys
                    (1, 'watched', '25769803776'), -- an operator may have paused the queue or limited how many run: its row says so
                    (3, 'name', quote_literal(queue)),
                    (3, 'queue', _q(queue)),
                    (3, 'schema', quote_ident(current_schema())),
                    (2, 'id', q.id::text),
                    (2, 'lifo', q.lifo::text),
                    (2, 'dir', case when q.lifo then 'desc' else 'asc' end),
                    (2, 'beyond', case when q.lifo then '<' else '>' end),
                    (2, 'start', case when q.lifo then '9223372036854775807' else '-1' end),
                    (2, 'from', case when q.lifo then 'operator(pg_catalog.<=)' else 'operator(pg_catalog.>=)' end),
                    (2, 'to', case when q.lifo then 'operator(pg_catalog.>=)' else 'operator(pg_catalog.<=)' end),
                    (2, 'ahead', case when q.lifo then 'operator(pg_catalog.-)' else 'operator(pg_catalog.+)' end),
                    (2, 'older_first', case when q.lifo then 'in reverse cardinality(slots) .. 1' else 'in 1 .. cardinality(slots)' end)) v
                union all
                select 3, f, _q(format('_%s.%s', queue, f)) from unnest(array_remove(_generated(), 'flags')) f -- {flags} is a register, see {raise}
                union all
                select 3, r, format('%L::pg_catalog.regclass', _q(format('_%s.%s', queue, r)))
                  from unnest('{ring,flags,seq,fast_path,next,top,seen,maintained}'::text[]) r
                union all
                select 3, r, format('%L::pg_catalog.regclass', _q('_' || r)) from unnest('{skip_map_slot,lease_slot,lease_n,scheduled_slot}'::text[]) r) w(n, word, what)
         order by w.n -- those that are in others come later
    loop
        body := replace(body, '{' || word || '}', what);
    end loop;

    parts := string_to_array(body, '{segments ');
    body := parts[1];
    foreach part in array parts[2:] loop
        head := split_part(part, '}', 1);
        ends := position('{end}' in part);
        block := substr(part, length(head) + 3, ends - length(head) - 3);
        body := body || _choose(split_part(head, ' ', 1),
                                array(select s + ('0' || split_part(head, ' ', 2))::int from unnest(slots) with ordinality u(s, n) order by n),
                                array(select replace(block, '{segment}', s) from unnest(segments) with ordinality u(s, n) order by n))
                     || substr(part, ends + 5);
    end loop;
    return replace(replace(body, e'\x010', '{'), e'\x011', e'\x01'); -- as _hidden has hidden it
end $function$;

-- _hidden hides braces of a name from _fill.
CREATE OR REPLACE FUNCTION penstock._hidden(name text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select replace(replace(name, e'\x01', e'\x011'), '{', e'\x010')
$function$;

-- Tells a client, which was written for a version of the schema, whether they fit, and returns the version that the schema has:
-- that of the newest numbered file. Error: PS002.
CREATE OR REPLACE FUNCTION penstock.check_client(written_for bigint)
 RETURNS bigint
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
declare
    oldest  constant bigint := 220; -- that a client may be written for; a change that breaks older ones raises it
    version constant bigint := 268;
begin
    if written_for > version then
        raise exception 'the schema is version %, this client needs %', version, written_for
        using errcode = 'PS002', hint = 'run: penstock migrate';
    elsif (written_for >= oldest) is not true then
        raise exception 'this client was written for version % of the schema, which is version % and takes clients for % on', coalesce(written_for::text, 'null'), version, oldest
        using errcode = 'PS002', hint = 'use a newer client';
    end if;
    return version;
end $function$;
-- everybody may execute it

-- _hashes are those of functions as they are now. What another version of the server or a session's settings write differently,
-- as defaults of arguments, is left out.
CREATE OR REPLACE FUNCTION penstock._hashes(functions oid[])
 RETURNS TABLE(name text, hash text)
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select format('%s(%s)', p.proname, (select string_agg(t.typname, ', ' order by a.i) from unnest(p.proargtypes) with ordinality a(type, i) join pg_type t on t.oid = a.type)),
           md5(format('%s %s %s %s %s %s %s %s %s %s %s %s', l.lanname, t.typname, p.proretset, p.proargnames, p.proargmodes, p.pronargdefaults, p.prokind, p.provolatile,
                      p.proisstrict, p.prosecdef, p.proconfig, p.prosrc))
      from unnest(functions) f join pg_proc p on p.oid = f join pg_language l on l.oid = p.prolang join pg_type t on t.oid = p.prorettype
$function$;

-- _keep_hashes notes functions that were made.
CREATE OR REPLACE FUNCTION penstock._keep_hashes(functions oid[])
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    insert into _function_hash (name, hash) select h.name, h.hash from _hashes(functions) h
    on conflict (name) do update set hash = excluded.hash where _function_hash.hash <> excluded.hash
$function$;

-- _forget_hashes is for functions that are about to be dropped.
CREATE OR REPLACE FUNCTION penstock._forget_hashes(functions oid[])
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    delete from _function_hash k using _hashes(functions) h where k.name = h.name
$function$;

-- _functions_of are those of the schema: all of them, or without those of queues and inboxes but one queue.
CREATE OR REPLACE FUNCTION penstock._functions_of(queue text)
 RETURNS oid[]
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select array(select p.oid from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and _is_of(p.proname::text, queue))
$function$;

-- _is_of says whether a function, by its name, belongs to a queue or to none; without a queue all do.
CREATE OR REPLACE FUNCTION penstock._is_of(name text, queue text)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
    select queue is null or strpos(name, '.') = 0 and not starts_with(name, 'dequeue_') or split_part(name, '(', 1) = 'dequeue_' || queue
        or starts_with(name, '_' || queue || '.') and strpos(substr(name, length(queue) + 3), '.') = 0
$function$;

-- _check_functions returns the hash of the files that the functions were made from, and those that are no longer as they were
-- made; hashing all takes some ms for each queue. Everybody may call it: workers, who may read nothing here, look at their start,
-- too.
CREATE OR REPLACE FUNCTION penstock._check_functions(queue text DEFAULT NULL::text, OUT files text, OUT changed text[])
 RETURNS record
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'penstock', 'pg_temp'
AS $function$
    select (select max(f.hash) from _functions f),
           array(select k.name || case when h.name is null then ' is missing' else ' was changed' end
                   from _function_hash k left join _hashes(_functions_of(queue)) h on h.name = k.name
                  where _is_of(k.name, queue) and h.hash is distinct from k.hash order by k.name)
$function$;
-- everybody may execute it

-- _dequeue_function is the text of dequeue_NAME.
CREATE OR REPLACE FUNCTION penstock._dequeue_function()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select _qualified($$

-- dequeue_NAME takes the next job of the group '' of the queue NAME: what dequeue does by
-- default, a sixth cheaper, because no name is looked up. It has a fast path, which is enough
-- nearly always: one statement for a position that a register holds, and few expressions,
-- because PL/pgSQL prepares each anew in each transaction. For the same reason it has no
-- search_path, which is a twentieth of it; _qualified says where its names are.
create or replace function {dequeue}() returns setof {schema}.job
language plpgsql volatile security definer set enable_seqscan to off as $fn$
declare
    path bigint := case when pg_sequence_last_value({flags}) = '{plain}' then pg_sequence_last_value({fast_path}) - ({now} * 4096) end;
    came bigint;
    here bigint;
    job  {schema}.job;
begin
{if lifo}
    -- The newest job, if one has come that the registers do not know.
    if path >= 0 and path < 2048 and pg_sequence_last_value({seq}) > pg_sequence_last_value({top}) then
        came := pg_sequence_last_value({seq});
        here := pg_sequence_last_value({ring}) % '1024';
{segments here}
            return query
            delete from {segment} t where t.ctid = (
                select t.ctid from {segment} t
                 where t.group_key = '' and t.priority = 0 and t.key is null and t.seq > (select pg_sequence_last_value({top}))
                 order by t.seq desc limit 1 for update skip locked)
            returning {job};
{end}
        if found then
            return;
        end if;
        came := setval({top}, came);
    end if;
{end if}
    -- The job at the position that is drawn, if nobody has ever locked it: without a lock of its own it
    -- costs half. Somebody may lock the job between the look at xmax and the delete, which then waits
    -- for him; but a position is drawn once, and who takes batches says so first (mode 1).
    if path >= 0 and path < 1024 then
{segments path}
            return query
            delete from {segment} t where t.group_key = '' and t.priority = 0 and t.seq = (select nextval({next})) and t.xmax = '0' and t.key is null
            returning {job};
{end}
        if found then
            return;
        end if;
        path := path + 1024;
    end if;
    if path >= 1024 and path < 3072 then
        if path < 2048 then -- the first from there on that is free, but not far: a scan reads all entries of an index page within its bounds
{segments path 1024}
            return query
            delete from {segment} t where t.ctid = (
                select t.ctid from {segment} t
                 where t.group_key = '' and t.priority = 0 and t.key is null
                   and t.seq {from} (select nextval({next})) and t.seq {to} (select pg_sequence_last_value({next}) {ahead} 16)
                 order by t.seq {dir} limit 1 for update skip locked)
            returning {job};
{end}
{if fifo}
        else
{segments path 2048}
            return query
            delete from {segment} t where t.ctid = (
                select t.ctid from {segment} t
                 where t.group_key = '' and t.priority = 0 and t.key is null and t.seq > (select pg_sequence_last_value({next}))
                 order by t.seq limit 1 for update skip locked)
            returning {job};
{end}
{end if}
        end if;
        if found then
            return;
        end if;
    end if;
    job := {scan}();
    if job.id is not null then
        return next job;
    end if;
    {maintain_if_due}
end $fn$;
$$) $function$;

-- _scan_function is the text of scan.
CREATE OR REPLACE FUNCTION penstock._scan_function()
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
 SET search_path TO 'penstock', 'pg_temp'
AS $function$ select $$

-- {scan} is the slow path: it takes one job by the skip map, which misses nothing, and says in registers
-- where the fast path goes on (docs/decisions/0008). next is the last position that was drawn;
-- fast_path is the time, in units of 25 ms, * 4096 + the mode * 1024 + the segment. It holds
-- until the time moves on, so what appears behind the position, by a rollback or a late
-- commit, is found by the next scan; while one finds such jobs, all calls scan. The mode
-- is 0 where each call draws a position and takes the job there, 1 where it takes the
-- first from there on that is free, and 2 with fewer than 64 jobs waiting: then nothing is
-- drawn, and the position stays before the first job that an unlocked read sees, so that
-- one whose taking is rolled back comes next.
--
-- LIFO draws positions downwards, and takes first what came after top: that far the
-- sequence had come when somebody last found nothing above the position.
create or replace function {scan}() returns {schema}.job
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $fn$
declare
    was    bigint := pg_sequence_last_value({fast_path});
    came   bigint := coalesce(pg_sequence_last_value({seq}), 0);
    pos    bigint := pg_sequence_last_value({next});
    mode   bigint;
    first  bigint;
    here   smallint;
{if fifo}
    other  bigint;
{end if}
{if lifo}
    top    bigint := pg_sequence_last_value({top});
    few    int;
{end if}
    m      record;
    job    record;
begin
    if pg_current_xact_id_if_assigned() is not null -- jobs that this transaction took may come back, and it does not see them
       or pg_sequence_last_value({flags}) <> {plain} then
        select row({job})::{schema}.job as row into job from {take_rows}(1, '') t;
        return job.row;
    end if;
    if {now} - was / 4096 < 40 and was % '4096' < 2048 then -- others need not scan meanwhile
        perform setval({fast_path}, {now} * 4096 + was % '4096');
        mode := case when was % '4096' >= 1024 and random() < '0.9' then 1 else 0 end; -- there are batches, too
    end if;
{leaf of skip_map}
    select k.turn, k.slots, k.slots[1] as slot, k.lo[1] as low, k.hi[1] as high,
           k.turn = pg_sequence_last_value({ring}) and cardinality(k.slots) = 1 and cardinality(k.lo) = 1 and cardinality(k.pending) = 0 as plain
      into m from {leaf} k where k.queue = {id} and k.group_key = '' and k.priority = 0 order by k.n desc limit 1;
{end}
    if m.plain and (came - m.low <= 256 or random() > '0.25') then -- one range in one segment: without {take_rows}, which costs a new session half as much again
{segments m.slot}
{if fifo}
        if came - pos < 64 then
            select t.seq into first from {segment} t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
        end if;
{end if}
        delete from {segment} t where t.ctid = (
            select t.ctid from {segment} t
             where t.group_key = '' and t.priority = 0 and t.seq >= m.low and t.seq <= m.high and t.key is null
             order by t.seq {dir} limit 1 for update skip locked)
        returning row({job})::{schema}.job as row, t.seq, t.slot into job;
{end}
    else
{if fifo}
        if came - pos < 64 then
            foreach here in array case when m.turn = pg_sequence_last_value({ring}) then m.slots else {slots} end loop
{segments here}
                select t.seq into other from {segment} t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
{end}
                first := least(first, other);
            end loop;
        end if;
{end if}
        select row({job})::{schema}.job as row, t.seq, t.slot into job from {take_rows}(1, '', coalesce(m.plain, false) or random() < '0.25') t;
    end if;
{if lifo}
    here := job.slot;
{segments here}
    select count(*) into few from (select from {segment} t where t.group_key = '' and t.priority = 0 and t.seq < job.seq and t.seq > job.seq - 256 limit 64) f;
{end}
    if job.seq > top or job.seq <= pos + 64 and few = 64 then -- and not further behind than those who have drawn a position and not yet come to it
        perform setval({next}, case when job.seq > top then job.seq else least(pos, job.seq) end);
        perform setval({top}, came), setval({fast_path}, {now} * 4096 + coalesce(mode, 0) * 1024 + job.slot);
    else
        perform setval({fast_path}, 0);
    end if;
{end if}
{if fifo}
    if came - pos >= 64 then
        if job.seq >= pos - 64 then
            perform setval({next}, greatest(pos, job.seq)), setval({fast_path}, {now} * 4096 + coalesce(mode, 0) * 1024 + job.slot);
        elsif job.seq is null then -- the next scan reads the first
            perform setval({next}, came), setval({fast_path}, 0);
        else
            perform setval({fast_path}, 0);
        end if;
    elsif job.seq is null then
        perform setval({next}, greatest(coalesce(first - 1, came), 0)), setval({fast_path}, {now} * 4096 + 2048 + pg_sequence_last_value({ring}) % '1024');
    else
        perform setval({next}, greatest(first, job.seq - 1000, 1) - 1), -- not over all that is gone behind a job that somebody holds
                setval({fast_path}, {now} * 4096 + 2048 + job.slot);
    end if;
{end if}
    return job.row;
end $fn$;

$$ $function$;

-- Notes that a consumer receives a message, and says whether it is the first time. Its transaction commits the note with what it
-- does. Errors: 42P01, 22023, 23514.
CREATE OR REPLACE FUNCTION penstock.inbox(consumer text, message_id text)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return penstock."__inbox.1.first"(message_id);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Discards messages that are held back, as if they had never come, and returns their ids. Messages that wait for them are due
-- now.
CREATE OR REPLACE FUNCTION penstock.inbox_discard(consumer text, message_ids text[])
 RETURNS SETOF text
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return query select * from penstock."__inbox.1.discard"(message_ids);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Hands over messages that have waited long enough: of up to n keys, the first one and those behind it. The first one has gap,
-- and the id that is missing.
CREATE OR REPLACE FUNCTION penstock.inbox_due(consumer text, n integer DEFAULT 10, passing_over text[] DEFAULT '{}'::text[])
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return query select * from penstock."__inbox.1.due"(n, passing_over);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Lists up to n messages that did not come in time or were discarded, the latest first.
CREATE OR REPLACE FUNCTION penstock.inbox_gaps(consumer text, n integer DEFAULT 100)
 RETURNS SETOF penstock.inbox_gap
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return query select * from penstock."__inbox.1.list_gaps"(n);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Lists up to n messages that are held back, those that are due first. The payload comes with it where one message is asked for
-- by its id.
CREATE OR REPLACE FUNCTION penstock.inbox_held(consumer text, key text DEFAULT NULL::text, previous_id text DEFAULT NULL::text, message_id text DEFAULT NULL::text, n integer DEFAULT 100)
 RETURNS SETOF penstock.held_message
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return query select * from penstock."__inbox.1.list_held"(key, previous_id, message_id, n);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Receives a message of a key and returns the messages that may be processed now, in order: none if it came before, or came early
-- and is held back for up to wait. Else it is this message, and those that were held for it. Errors: 42P01, 22023, 23514, 25001.
CREATE OR REPLACE FUNCTION penstock.inbox_in_order_bytes(consumer text, key text, message_id text, previous_id text, headers jsonb, payload bytea, wait interval DEFAULT '00:00:30'::interval)
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return query select * from penstock."__inbox.1.in_order"(key, message_id, previous_id, headers, payload, wait);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Notes several messages as inbox does, and returns the ids of those that are received for the first time, in their order.
CREATE OR REPLACE FUNCTION penstock.inbox_many(consumer text, message_ids text[])
 RETURNS SETOF text
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return query select * from penstock."__inbox.1.first_of"(message_ids);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Makes messages that are held back due now, of a key, of a predecessor, of an id, or all, and returns how many. The next
-- inbox_due hands them over.
CREATE OR REPLACE FUNCTION penstock.inbox_release(consumer text, key text DEFAULT NULL::text, previous_id text DEFAULT NULL::text, message_id text DEFAULT NULL::text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then return penstock."__inbox.1.let_go"(key, previous_id, message_id);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

-- Does at once what calls do now and then: the inbox forgets ids that are out of its window, and gives their space back.
CREATE OR REPLACE FUNCTION penstock.maintain_inbox(consumer text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    case consumer
    when null then null;
    when 'billing' then perform penstock."__inbox.1.maintain"(true);
    else
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select penstock.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $function$;
-- everybody may execute it

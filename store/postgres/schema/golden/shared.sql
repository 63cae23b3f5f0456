-- What is there once, with the functions that take a name. Of a function that stands word for word in a file of store/postgres
-- there is only the name of that file, in which {schema} stands for penstock. Everybody may execute internal functions without
-- SECURITY DEFINER. As it stands in the database, with the comments of store/postgres/schema; TestGolden compares it, and -update
-- writes it.

create type penstock._claimed as (
    lease bigint,
    id bigint,
    created_at timestamp with time zone,
    attempt integer,
    headers jsonb,
    payload bytea,
    failures jsonb
);

create type penstock._unique_job as (
    id bigint,
    key text,
    state text,
    created_at timestamp with time zone,
    place regclass,
    at tid
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

create table penstock._barrier (
    barrier bigint not null,
    n bigint not null default nextval('penstock._barrier_n'::regclass),
    xid xid8 not null default pg_current_xact_id(),
    running bigint,
    queue integer not null,
    dead integer,
    part smallint not null,
    slot smallint not null default ((pg_sequence_last_value('penstock._barrier_slot'::regclass) % (2)::bigint))::smallint
) partition by LIST (slot);
CREATE INDEX _barrier_barrier_part_n_idx ON ONLY penstock._barrier USING btree (barrier, part, n);
CREATE INDEX _barrier_xid_n_idx ON ONLY penstock._barrier USING btree (xid, n);
CREATE CONSTRAINT TRIGGER turn AFTER INSERT ON penstock._barrier DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((((new.part < 0) OR (new.part = 17)) AND (new.xid = pg_current_xact_id()))) EXECUTE FUNCTION penstock._turn_barriers();
comment on column penstock._barrier.barrier is 'the number that penstock.barrier has returned';
comment on column penstock._barrier.n is 'of a barrier the row of part 16 with the highest n is true, and that of part 0 with all of part -1 that have a higher n';
comment on column penstock._barrier.xid is 'the transaction that wrote the row, which sees to its notes when it commits';
comment on column penstock._barrier.running is 'how many jobs that hold the barrier have not ended and are not dead; of part 16: 0 made, 1 sealed, 2 open; of part 17: the job that waits';
comment on column penstock._barrier.queue is 'id in _queue';
comment on column penstock._barrier.dead is 'how many jobs that hold the barrier are dead letters';
comment on column penstock._barrier.part is '0: the jobs that hold the barrier; 16: the barrier; 17: a job that waits for it. -1: a change of how many jobs hold it. -17: it is sealed';
comment on column penstock._barrier.slot is 'the segment: _barrier_0 or _barrier_1';

create table penstock._barrier_0 partition of penstock._barrier FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._barrier_0 replica identity full;

create table penstock._barrier_1 partition of penstock._barrier FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._barrier_1 replica identity full;

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
comment on column penstock._dead_job.queue is 'id in _queue';
comment on column penstock._dead_job.id is 'the id of the job, which it keeps if it is retried';
comment on column penstock._dead_job.attempt is 'how many attempts it has had';
comment on column penstock._dead_job.created_at is 'when the job was enqueued';
comment on column penstock._dead_job.died_at is 'when its last attempt failed';
comment on column penstock._dead_job.priority is 'that of the job; 16: a message that waited for barriers';
comment on column penstock._dead_job.failures is 'the last ten failed attempts: attempt, error, at';

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
comment on column penstock._dedup.queue is 'id in _queue';
comment on column penstock._dedup.id is 'the id of the job that came first, which a later enqueue with the key returns';
comment on column penstock._dedup.at is 'when that job was enqueued';
comment on column penstock._dedup.slot is 'the segment: _dedup_0 or _dedup_1';

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

create table penstock._group (
    queue integer not null,
    max_running integer,
    rate integer,
    per interval,
    burst integer,
    weight integer,
    group_key text collate "C" not null,
    CHECK ((burst > 0)),
    CHECK ((octet_length(group_key) <= 256)),
    CHECK ((max_running > 0)),
    PRIMARY KEY (queue, group_key),
    FOREIGN KEY (queue) REFERENCES penstock._queue(id) ON DELETE CASCADE,
    CHECK ((rate > 0)),
    CHECK (((weight >= 1) AND (weight <= 100)))
);
comment on column penstock._group.queue is 'id in _queue';
comment on column penstock._group.max_running is 'how many jobs may be claimed at a time; null: no limit';
comment on column penstock._group.rate is 'how many jobs may start in the time per; null: no limit';
comment on column penstock._group.per is 'see rate';
comment on column penstock._group.burst is 'how many jobs may start at once after a pause; null: 1';
comment on column penstock._group.weight is 'how often the group comes in a turn of ready_groups; null: 1';
comment on column penstock._group.group_key is 'the group; * stands for each that has no row';

create table penstock._group_state (
    queue integer not null,
    n bigint not null default nextval('penstock._group_state_n'::regclass),
    next_at timestamp with time zone,
    held_until timestamp with time zone,
    since bigint,
    slot smallint not null default ((pg_sequence_last_value('penstock._group_state_slot'::regclass) % (2)::bigint))::smallint,
    group_key text collate "C" not null,
    reason text,
    leases bigint[] not null default '{}'::bigint[]
) partition by LIST (slot);
CREATE INDEX _group_state_queue_group_key_n_idx ON ONLY penstock._group_state USING btree (queue, group_key, n);
comment on column penstock._group_state.queue is 'id in _queue; below zero it is the state of the queue as a whole, whose group is empty';
comment on column penstock._group_state.n is 'of a group the row with the highest n is true';
comment on column penstock._group_state.next_at is 'when the next job would start if all were evenly spread at the rate; null: none has started yet';
comment on column penstock._group_state.held_until is 'no job of the group starts before; null: it is not held';
comment on column penstock._group_state.since is 'the leases of the group are those of the rows with this n and above; null: those of this row';
comment on column penstock._group_state.slot is 'the segment: _group_state_0 or _group_state_1';
comment on column penstock._group_state.reason is 'why the group is held';
comment on column penstock._group_state.leases is 'leases of a group that has a limit: those that the claim took which wrote the row or, if since is null, all that were held then';

create table penstock._group_state_0 partition of penstock._group_state FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._group_state_0 replica identity full;

create table penstock._group_state_1 partition of penstock._group_state FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._group_state_1 replica identity full;

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
    report jsonb,
    listed boolean
) partition by LIST (slot);
CREATE INDEX _lease_queue_key_lease_idx ON ONLY penstock._lease USING btree (queue, key, lease) WHERE (key IS NOT NULL);
CREATE INDEX _lease_queue_lease_until_idx ON ONLY penstock._lease USING btree (queue, lease_until);
comment on column penstock._lease.lease is 'the number that ack, extend and the like take: a value of the sequence _lease_n, and random bits behind it. Of a row of several jobs it is odd: the job in place i has this number + 2 * i';
comment on column penstock._lease.queue is 'id in _queue; below zero the row holds no job: it is a worker''s report of itself, and lease_until is how long the worker counts as alive without another one';
comment on column penstock._lease.attempt is 'the number of this attempt, from 1; null in a row of several jobs, as are id, created_at, key, payload and failures';
comment on column penstock._lease.lease_until is 'when the lease ends; the next maintenance puts the job back then';
comment on column penstock._lease.id is 'the id of the job';
comment on column penstock._lease.created_at is 'when the job was enqueued';
comment on column penstock._lease.slot is 'the segment: _lease_0 or _lease_1';
comment on column penstock._lease.worker is 'the name that the caller of claim gave; empty without one';
comment on column penstock._lease.headers is 'the headers of the job; in a row of several jobs penstock-holds, if all of them hold the same barrier, else null';
comment on column penstock._lease.failures is 'the last ten failed attempts: attempt, error, at';
comment on column penstock._lease.done is 'of a row of several jobs: a bit for each of 256 places, set if the place holds no job any more, or never held one. 256 - bit_count(done) jobs are left';
comment on column penstock._lease.jobs is 'the jobs of one claim, also those that are done; null: a row of one job';
comment on column penstock._lease.claimed_at is 'when the jobs were claimed; null: by an older version';
comment on column penstock._lease.report is 'the last report of its worker';
comment on column penstock._lease.listed is 'true: it is one of the leases in _group_state; else the group had no limit when the job was claimed';

create table penstock._lease_0 partition of penstock._lease FOR VALUES IN ('0') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock._lease_0 alter column jobs set compression lz4;
CREATE UNIQUE INDEX _lease_0_lease ON penstock._lease_0 USING btree (lease);
alter table penstock._lease_0 replica identity using index penstock._lease_0_lease;

create table penstock._lease_1 partition of penstock._lease FOR VALUES IN ('1') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock._lease_1 alter column jobs set compression lz4;
CREATE UNIQUE INDEX _lease_1_lease ON penstock._lease_1 USING btree (lease);
alter table penstock._lease_1 replica identity using index penstock._lease_1_lease;

create table penstock._maintenance (
    slot smallint not null default ((pg_sequence_last_value('penstock._maintenance_slot'::regclass) % (2)::bigint))::smallint,
    queue integer not null,
    until timestamp with time zone
) partition by LIST (slot);
CREATE CONSTRAINT TRIGGER maintenance AFTER INSERT ON penstock._maintenance DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock._maintain_at_commit();
comment on column penstock._maintenance.slot is 'the segment: _maintenance_0 or _maintenance_1';

create table penstock._maintenance_0 partition of penstock._maintenance FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._maintenance_0 replica identity full;

create table penstock._maintenance_1 partition of penstock._maintenance FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._maintenance_1 replica identity full;

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
comment on column penstock._pair.name is 'the table whose two segments these are';
comment on column penstock._pair.retired is 'since when the segment that is not written to has held no row that counts';
comment on column penstock._pair.again is 'maintenance does not look at the ring before this time';
comment on column penstock._pair.writers is 'as in _segment: transactions that may still commit rows into the segment that was left behind';
comment on column penstock._pair.trouble is 'the error with which its maintenance failed last; null once it has succeeded';

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
    rate integer,
    per interval,
    burst integer,
    CHECK ((dedup_window > '00:00:00'::interval)),
    CHECK ((max_attempts > 0)),
    CHECK ((max_running > 0)),
    CHECK ((((octet_length(name) >= 1) AND (octet_length(name) <= 48)) AND ("left"(name, 1) <> '_'::text))),
    UNIQUE (name),
    PRIMARY KEY (id)
);
comment on column penstock._queue.id is 'the number that stands for the queue in other tables; it is not given again after drop_queue';
comment on column penstock._queue.name is 'also the name of the table of its jobs';
comment on column penstock._queue.lifo is 'whether the newest job comes first';
comment on column penstock._queue.segment_bytes is 'another segment is written to once the current one, with TOAST, is this large';
comment on column penstock._queue.max_attempts is 'a job whose attempt of this number fails is a dead letter';
comment on column penstock._queue.paused is 'claim and dequeue return no job, see pause_queue';
comment on column penstock._queue.max_running is 'how many jobs may be claimed at a time; null: no limit';
comment on column penstock._queue.dedup_window is 'how long a dedup key stands for the job that came first';
comment on column penstock._queue.keep_done is 'how long done jobs are kept; null: not at all';
comment on column penstock._queue.keep_done_bytes is 'how large the done jobs may become; the oldest go first';
comment on column penstock._queue.done_since is 'since when each segment of the done jobs has been written to, by slot; null: the queue has never kept any';
comment on column penstock._queue.rate is 'how many jobs may start in the time per; null: no limit';
comment on column penstock._queue.per is 'see rate';
comment on column penstock._queue.burst is 'how many jobs may start at once after a pause; null: 1';

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
    reason text,
    PRIMARY KEY (subscription, parked_key),
    FOREIGN KEY (subscription) REFERENCES penstock._subscription(id) ON DELETE CASCADE
);

create table penstock._sample (
    series bigint not null,
    at timestamp with time zone not null default clock_timestamp(),
    arrived bigint not null,
    ended bigint not null,
    failed bigint not null,
    oldest real not null,
    dead integer not null,
    pause smallint not null default 0,
    slot smallint not null default (pg_sequence_last_value('penstock._sample_slot'::regclass))::smallint,
    done jsonb
) partition by LIST (slot);
CREATE INDEX _sample_series_at_idx ON ONLY penstock._sample USING btree (series, at);
alter table penstock._sample enable row level security;
create policy operator on penstock._sample for select using ((series IN ( SELECT its.id
   FROM penstock._queue its
  WHERE has_function_privilege((to_regproc(penstock._q(format('_%s.cancel'::text, its.name))))::oid, 'execute'::text))));
comment on column penstock._sample.series is 'an id in _queue; below zero one in _subscription';
comment on column penstock._sample.arrived is 'the last number that a message or a job was given';
comment on column penstock._sample.ended is 'messages that were settled, or jobs that were done as workers report them; it grows';
comment on column penstock._sample.failed is 'attempts at jobs that failed, as workers report them; it grows';
comment on column penstock._sample.oldest is 'seconds since the oldest unsettled message was written, or the oldest ready job; 0: there is none';
comment on column penstock._sample.dead is 'dead letters, counted up to 1,000';
comment on column penstock._sample.pause is 'how many samples repeat oldest, because the search for it took long';
comment on column penstock._sample.done is 'how long done jobs took since the sample before, in a queue that keeps them: all, and by kind and worker';

create table penstock._sample_0 partition of penstock._sample FOR VALUES IN ('0') with (autovacuum_enabled=false);
alter table penstock._sample_0 replica identity full;

create table penstock._sample_1 partition of penstock._sample FOR VALUES IN ('1') with (autovacuum_enabled=false);
alter table penstock._sample_1 replica identity full;

create table penstock._sampling (
    one boolean not null default true,
    keep interval not null default '03:00:00'::interval,
    turned timestamp with time zone not null default '1970-01-01 00:00:00+00'::timestamp with time zone,
    CHECK (one),
    PRIMARY KEY (one)
);
comment on column penstock._sampling.keep is 'for how long samples are kept at least; 0: none are taken';
comment on column penstock._sampling.turned is 'since when the current segment of _sample is written to';

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
    paused boolean not null default false,
    skip_overlap boolean not null default false,
    last_job bigint,
    last_group text,
    last_priority smallint,
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
comment on column penstock._schedule.queue is 'id in _queue';
comment on column penstock._schedule.next is 'when the next job is due; maintenance enqueues it then';
comment on column penstock._schedule.paused is 'its jobs are left out';
comment on column penstock._schedule.skip_overlap is 'a job is left out while the one before has not ended';
comment on column penstock._schedule.last_job is 'the id of the job that was enqueued last';

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
comment on column penstock._scheduled.id is 'the id of the job. In a row whose queue is below zero: a hash of the key';
comment on column penstock._scheduled.queue is 'id in _queue; below zero the row holds no job: it asks maintenance to look which job of the key is next';
comment on column penstock._scheduled.attempt is 'how many attempts the job has had; -1: none that counts, but it has begun and was released, and later jobs of its key wait for it';
comment on column penstock._scheduled.due is 'when the job may run; infinity: it waits until an earlier job of its key has ended; -infinity: it waits for barriers';
comment on column penstock._scheduled.created_at is 'when the job was enqueued';
comment on column penstock._scheduled.priority is 'that of the job; 16: a message that waits for barriers';
comment on column penstock._scheduled.slot is 'the segment: _scheduled_0 or _scheduled_1';
comment on column penstock._scheduled.failures is 'the last ten failed attempts: attempt, error, at';

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
comment on column penstock._segment.queue is 'id in _queue';
comment on column penstock._segment.slot is 'the segment is the table _NAME.SLOT';
comment on column penstock._segment.turn is 'the order in which segments came into use; jobs of a lower turn come first in a FIFO';
comment on column penstock._segment.writers is 'transactions that may still commit jobs into it after it was left behind, as in pg_locks.virtualtransaction; it stays listed until they have ended; null: not looked up yet';
comment on column penstock._segment.looked is 'when writers was looked up';
comment on column penstock._segment.rest is 'how many jobs it had when they were counted last';
comment on column penstock._segment.leaving is 'its jobs are being carried over to the next segment';
comment on column penstock._segment.job is 'the place of a job that a long search found: while it is there, maintenance does not search again';
comment on column penstock._segment.retired is 'since when jobs are not taken from it any more: it has none, and waits for its TRUNCATE; null: it is listed';
comment on column penstock._segment.again is 'maintenance does not look into it, or lock it, before this time';
comment on column penstock._segment.trouble is 'the error with which its maintenance failed last; null once it has succeeded';

create table penstock._skip_map (
    queue integer not null,
    n bigint not null default nextval('penstock._skip_map_n'::regclass),
    base bigint not null,
    seen bigint not null,
    xid xid8 not null,
    turn bigint not null,
    slot smallint not null default ((pg_sequence_last_value('penstock._skip_map_slot'::regclass) % (2)::bigint))::smallint,
    priority smallint not null,
    group_key text collate "C" not null,
    lo bigint[] not null,
    hi bigint[] not null,
    pending xid8[] not null,
    slots smallint[] not null
) partition by LIST (slot);
CREATE INDEX _skip_map_queue_group_key_priority_n_idx ON ONLY penstock._skip_map USING btree (queue, group_key, priority, n);
comment on column penstock._skip_map.queue is 'id in _queue; below zero the row says of a key, its group_key, where a search begins: see _where_to_begin';
comment on column penstock._skip_map.n is 'of a queue, group and priority the row with the highest n is true';
comment on column penstock._skip_map.base is 'up to this seq the skip map is complete: where it shows no job, none is left';
comment on column penstock._skip_map.seen is 'where the sequence of the queue stood before xid was drawn: the base of the next skip map, once xid has ended';
comment on column penstock._skip_map.xid is 'each transaction that drew a seq up to seen has a lower xid';
comment on column penstock._skip_map.turn is 'the register ring of the queue (turn * 1024 + slot) when slots was made. With another value slots is made anew. Below zero: the next call writes a skip map';
comment on column penstock._skip_map.slot is 'the segment: _skip_map_0 or _skip_map_1';
comment on column penstock._skip_map.lo is 'jobs may be where lo[i] <= seq <= hi[i], for any i. Of a key: the register _skip_map_slot then';
comment on column penstock._skip_map.hi is 'see lo';
comment on column penstock._skip_map.pending is 'transactions that had not ended: their jobs may be elsewhere, and are looked for by xid once they have ended';
comment on column penstock._skip_map.slots is 'the segments that may hold jobs, in the order in which they are looked into';

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

create table penstock._template (
    kind text collate "C" not null,
    name text collate "C" not null,
    body text not null,
    PRIMARY KEY (kind, name)
);

create sequence penstock._adopt_n;
create sequence penstock._barrier_n; -- orders the rows of _barrier
create sequence penstock._barrier_slot minvalue 0 maxvalue 3; -- holds 0. register: the segment of _barrier that is written to; + 2: the other one is still read
create sequence penstock._barrier_watched minvalue 0; -- holds 0. register: the barrier of which ends need no notes, and the oid of the register from bit 31 on
create sequence penstock._cursor_n; -- orders the rows of _cursor
create sequence penstock._cursor_slot minvalue 0 maxvalue 1; -- holds 0. register: the segment of _cursor that is written to
create sequence penstock._dedup_slot minvalue 0 maxvalue 3; -- holds 0. register: the segment of _dedup that is written to; + 2: the other one is still read
create sequence penstock._group_state_n; -- orders the rows of _group_state
create sequence penstock._group_state_slot minvalue 0 maxvalue 3; -- holds 0. register: the segment of _group_state that is written to; + 2: the other one is still read
create sequence penstock._lease_n; -- counts leases: the upper bits of their numbers
create sequence penstock._lease_slot minvalue 0 maxvalue 3; -- holds 0. register: the segment of _lease that is written to; + 2: the other one is still read
create sequence penstock._maintenance_slot minvalue 0 maxvalue 3; -- holds 0. register: the segment of _maintenance that is written to; + 2: the other one is still read
create sequence penstock._parked_key_n; -- orders the rows of _parked_key
create sequence penstock._parked_key_slot minvalue 0 maxvalue 1; -- holds 0. register: the segment of _parked_key that is written to
create sequence penstock._parked_p increment by 1048576 minvalue 1048576; -- orders the rows of _parked, in steps of 2^20
create sequence penstock._parked_slot minvalue 0 maxvalue 1; -- holds 0. register: the segment of _parked that is written to
create sequence penstock._sample_slot minvalue 0 maxvalue 1; -- holds 0. register: the segment of _sample that is written to
create sequence penstock._sampled minvalue 0; -- holds 17179869183. register: minute * 2^34 + the queue or subscription that was sampled last; all 34 bits: the round of this minute is over
create sequence penstock._scheduled_slot minvalue 0 maxvalue 3; -- holds 0. register: the segment of _scheduled that is written to; + 2: the other one is still read
create sequence penstock._skip_map_n; -- orders the rows of _skip_map
create sequence penstock._skip_map_slot minvalue 0; -- holds 0. register: how often the ring of skip maps has turned; modulo 2, the segment that is written to

create view penstock._waiting_message as
 SELECT NULL::text AS queue,
    NULL::bigint[] AS waits_for,
    NULL::text AS on_dead,
    NULL::text AS outbox,
    NULL::text AS id,
    NULL::text AS key,
    NULL::text AS topic,
    NULL::jsonb AS headers,
    NULL::bytea AS payload,
    NULL::name AS role,
    NULL::bigint AS job
  WHERE false;
comment on column penstock._waiting_message.role is 'who inserts; no role may give another';
comment on column penstock._waiting_message.job is 'the id, in the queue, of the message that was written';

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
comment on column penstock.queue_internals.keyed is 'jobs with keys may be there: claims look for those that must wait. Bits 35 and 36 of the register, for deadlines and barriers, are not shown';
comment on column penstock.queue_internals.watched is 'the row of the queue has a pause or a limit of running jobs; or a group has a policy or is held';
comment on column penstock.queue_internals.last_seq is 'last number that a job was given';
comment on column penstock.queue_internals.fast_path is 'how jobs are found: at the position, which each call moves; as the first free one from there; without moving it, while few jobs wait; or by the skip map';
comment on column penstock.queue_internals.fast_path_slot is 'in which segment the position is';
comment on column penstock.queue_internals.fast_path_at is 'until 25 ms after this the fast path holds; a call writes it anew then';
comment on column penstock.queue_internals."position" is 'the last number that a call has drawn';
comment on column penstock.queue_internals.top is 'of a LIFO queue: how far the sequence had come when nothing was above the position';
comment on column penstock.queue_internals.maintained_at is 'when the maintenance of the queue ended last; it is due 250 ms later';
comment on column penstock.queue_internals.nothing_enqueued_since is 'since when the sequence has not moved, as maintenance saw it';
comment on column penstock.queue_internals.skip_map_waits is 'the next maintain_queue brings the bound of a skip map up to date';

-- function _refuse_headers(headers jsonb): schema/functions/publish.sql
-- function _readable(columns text): schema/functions/publish.sql

-- _validate_message is the trigger that validates the rows of an outbox, so that limits hold for a plain INSERT. A check
-- constraint would be parsed anew in every statement. It runs with the rights and on the search_path of the role that inserts,
-- because another path would cost as much again as the rest. So all in it is qualified.
CREATE OR REPLACE FUNCTION penstock._validate_message()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$ begin
    
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

-- function _validate_by(name text, call text): schema/functions/publish.sql
-- function publish_bytes(outbox text, payload bytea, key text, topic text, headers jsonb, id text): schema/functions/publish.sql
-- function publish(outbox text, payload jsonb, key text, topic text, headers jsonb, id text): schema/functions/publish.sql
-- function publish(outbox text, payload text, key text, topic text, headers jsonb, id text): schema/functions/publish.sql

-- _q qualifies and quotes the name of a relation of this schema. Unqualified, an outbox called pg_class would be looked up in
-- pg_catalog.
CREATE OR REPLACE FUNCTION penstock._q(name text)
 RETURNS text
 LANGUAGE sql
 STABLE
 SET search_path TO 'penstock', 'pg_temp'
RETURN format('%I.%I'::text, "current_schema"(), name);

-- function _read_committed(): schema/functions/outbox.sql
-- function _make_register(name text, value bigint): schema/functions/manage_outboxes.sql
-- function create_outbox(name text, segments integer, segment_bytes bigint): schema/functions/manage_outboxes.sql
-- function drop_outbox(name text): schema/functions/manage_outboxes.sql
-- function drop_subscription(outbox text, name text): schema/functions/manage_outboxes.sql
-- function set_retention(outbox text, age interval, bytes bigint): schema/functions/manage_outboxes.sql
-- function grant_producer(outbox text, role name): schema/functions/manage_outboxes.sql
-- function grant_relay(role name): schema/functions/manage_outboxes.sql
-- function _relay_roles(): schema/functions/manage_outboxes.sql
-- function _grant_relay_on(outbox text, role name): schema/functions/manage_outboxes.sql
-- function _segments(outbox text): schema/functions/reclaim.sql
-- function _rotate(outbox text, force boolean): schema/functions/reclaim.sql
-- function _reclaim(outbox text, slot integer): schema/functions/reclaim.sql
-- function _unsettled_in(segment regclass, subscription bigint): schema/functions/reclaim.sql
-- function _retained(outbox text, segment regclass): schema/functions/reclaim.sql
-- function _behind(outbox text, slot integer): schema/functions/reclaim.sql
-- function _holders(outbox text, slot integer, OUT subscriptions text[], OUT retained boolean): schema/functions/reclaim.sql
-- function _head(subscription bigint): schema/functions/cursor.sql
-- function _write_cursor(subscription bigint, epoch bigint, holder text, lease_us bigint, done pg_snapshot, low bigint, upto pg_snapshot, upto_low bigint, pos bigint, settled bigint, system bigint, since timestamp with time zone, expected bigint, timeline integer, ahead int8multirange): schema/functions/cursor.sql
-- function _report_sink(subscription bigint, epoch bigint, down timestamp with time zone, error text): schema/functions/cursor.sql
-- function _turn_ring(ring text, full_bytes bigint, carry text, rest text): schema/functions/cursor.sql
-- function _reclaim_cursor(): schema/functions/cursor.sql
-- function _reclaim_parked_keys(full_bytes bigint): schema/functions/parked.sql
-- function _reclaim_parked(full_bytes bigint): schema/functions/parked.sql
-- function _adopt_fence(of_subscription bigint, of_epoch bigint): schema/functions/adopt.sql

-- _adopt_lock locks a subscription for a change by another process than its relay. While it is held, no transaction that settles
-- messages is under way.
CREATE OR REPLACE FUNCTION penstock._adopt_lock(of_subscription bigint)
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'penstock', 'pg_temp'
RETURN pg_advisory_xact_lock(1885695585, (of_subscription)::integer);

-- function _adopt_release(of_subscription bigint, parked_keys text[]): schema/functions/adopt.sql
-- function grant_adopt(role name): schema/functions/adopt.sql
-- function create_queue(name text, ordering text, segments integer, segment_bytes bigint): schema/functions/create_queue.sql
-- function _queue_function(queue text, name text): schema/functions/queue_by_name.sql
-- function _call(queue text, call text, arguments text[]): schema/functions/queue_by_name.sql
-- function enqueue_bytes(queue text, payload bytea, key text, group_key text, priority integer, not_before timestamp with time zone, dedup_key text, headers jsonb, kind text, unique_key text, on_conflict text, debounce_max interval, max_attempts integer, timeout interval, deadline timestamp with time zone, holds bigint, waits_for bigint[], on_dead text): schema/functions/queue_by_name.sql, everybody may execute it
-- function enqueue_many_bytes(queue text, payloads bytea[], keys text[], group_keys text[], priorities integer[], not_befores timestamp with time zone[], dedup_keys text[], headers jsonb[], kinds text[], unique_keys text[], on_conflict text, debounce_max interval, max_attempts integer, timeout interval, deadline timestamp with time zone, holds bigint, waits_for bigint[], on_dead text): schema/functions/queue_by_name.sql, everybody may execute it
-- function enqueue(queue text, payload jsonb, key text, group_key text, priority integer, not_before timestamp with time zone, dedup_key text, headers jsonb, kind text, unique_key text, on_conflict text, debounce_max interval, max_attempts integer, timeout interval, deadline timestamp with time zone, holds bigint, waits_for bigint[], on_dead text): schema/functions/queue_by_name.sql, everybody may execute it
-- function enqueue(queue text, payload text, key text, group_key text, priority integer, not_before timestamp with time zone, dedup_key text, headers jsonb, kind text, unique_key text, on_conflict text, debounce_max interval, max_attempts integer, timeout interval, deadline timestamp with time zone, holds bigint, waits_for bigint[], on_dead text): schema/functions/queue_by_name.sql, everybody may execute it
-- function enqueue_many(queue text, payloads text[], keys text[], group_keys text[], priorities integer[], not_befores timestamp with time zone[], dedup_keys text[], headers jsonb[], kinds text[], unique_keys text[], on_conflict text, debounce_max interval, max_attempts integer, timeout interval, deadline timestamp with time zone, holds bigint, waits_for bigint[], on_dead text): schema/functions/queue_by_name.sql, everybody may execute it
-- function barrier(queue text): schema/functions/queue_by_name.sql, everybody may execute it
-- function seal(queue text, barrier bigint): schema/functions/queue_by_name.sql, everybody may execute it
-- function deduplicated(n bigint): schema/functions/queue_by_name.sql, everybody may execute it
-- function dequeue(queue text, n integer, group_key text): schema/functions/queue_by_name.sql, everybody may execute it
-- function claim(queue text, n integer, lease interval, group_key text, worker text): schema/functions/queue_by_name.sql, everybody may execute it
-- function ack_claim(queue text, leases bigint[], n integer, lease interval, group_key text, worker text): schema/functions/queue_by_name.sql, everybody may execute it
-- function ack_many(queue text, leases bigint[]): schema/functions/queue_by_name.sql, everybody may execute it
-- function ack(queue text, lease bigint): schema/functions/queue_by_name.sql, everybody may execute it
-- function extend_many(queue text, leases bigint[], by interval): schema/functions/queue_by_name.sql, everybody may execute it
-- function extend(queue text, lease bigint, by interval): schema/functions/queue_by_name.sql, everybody may execute it
-- function report(queue text, lease bigint, report jsonb): schema/functions/queue_by_name.sql, everybody may execute it
-- function release_many(queue text, leases bigint[], after interval): schema/functions/queue_by_name.sql, everybody may execute it
-- function release(queue text, lease bigint, after interval): schema/functions/queue_by_name.sql, everybody may execute it
-- function retry(queue text, lease bigint, after interval, error text): schema/functions/queue_by_name.sql, everybody may execute it
-- function dead_letter(queue text, lease bigint, error text): schema/functions/queue_by_name.sql, everybody may execute it
-- function _count_of(queue text, most integer): schema/functions/queue_by_name.sql
-- function _done_of(queue text, most integer, before text, ids bigint[]): schema/functions/queue_by_name.sql
-- function cancel(queue text, ids bigint[]): schema/functions/queue_by_name.sql, everybody may execute it
-- function pause_queue(name text): schema/functions/queue_by_name.sql, everybody may execute it
-- function resume_queue(name text): schema/functions/queue_by_name.sql, everybody may execute it
-- function dead_jobs(queue text, most integer, after bigint): schema/functions/queue_by_name.sql, everybody may execute it
-- function retry_dead_jobs(queue text, ids bigint[]): schema/functions/queue_by_name.sql, everybody may execute it
-- function discard_dead_jobs(queue text, ids bigint[]): schema/functions/queue_by_name.sql, everybody may execute it
-- function queue_status(queue text): schema/functions/queue_by_name.sql, everybody may execute it
-- function ready_groups(queue text, group_keys text[], behind text, most integer): schema/functions/queue_by_name.sql, everybody may execute it
-- function queue_groups(queue text, after text, most integer): schema/functions/queue_by_name.sql, everybody may execute it
-- function set_group(queue text, group_key text, max_running integer, rate integer, per interval, burst integer, weight integer): schema/functions/queue_by_name.sql, everybody may execute it
-- function hold_group(queue text, group_key text, hold_for interval, reason text): schema/functions/queue_by_name.sql, everybody may execute it
-- function group_policies(queue text, after text, most integer): schema/functions/queue_by_name.sql, everybody may execute it
-- function done_jobs(queue text, most integer, before text): schema/functions/queue_by_name.sql, everybody may execute it
-- function find_job(queue text, id bigint): schema/functions/queue_by_name.sql, everybody may execute it
-- function maintain_queue(name text): schema/functions/queue_by_name.sql, everybody may execute it
-- function _place(queue integer, seq regclass, payloads bytea[], keys text[], group_keys text[], priorities integer[], not_befores timestamp with time zone[], dedup_keys text[], headers jsonb[], OUT ids bigint[], OUT known boolean[], OUT at timestamp with time zone): schema/functions/enqueue.sql
-- function _first_of(queue integer, key text): schema/functions/enqueue.sql
-- function _failed(failures jsonb, attempt integer, error text): schema/functions/jobs.sql
-- function _refuse_job(payload bytea, key text, group_key text, priority integer, headers jsonb, dedup_key text): schema/functions/jobs.sql
-- function _refuse_options(headers jsonb, key text): schema/functions/jobs.sql
-- function _deadline(headers jsonb): schema/functions/jobs.sql
-- function _max_attempts(headers jsonb, of_queue integer): schema/functions/jobs.sql
-- function _with_options(headers jsonb, kind text, unique_key text, on_conflict text, debounce_max interval, max_attempts integer, timeout interval, deadline timestamp with time zone, holds bigint, waits_for bigint[], on_dead text): schema/functions/jobs.sql
-- function _lost(lease bigint): schema/functions/jobs.sql
-- function _hold_keys(queue integer, keys text[], waiting boolean): schema/functions/jobs.sql

-- _validate_job is the trigger that validates the rows of a queue, written like _validate_message. It raises flags of what comes:
-- bit 16 + p of a priority p, bit 32 of a key, bit 35 of a deadline, bit 36 of a barrier. The lock for that lasts for moments,
-- and a flag need not roll back: one too many costs a scan. Its argument is the name of the register and of the function that
-- raises them. For a job that holds a barrier it calls the queue's function barrier, which only enqueuers may call.
CREATE OR REPLACE FUNCTION penstock._validate_job()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$ declare wanted bigint;
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
    if new.attempt operator(pg_catalog.>) 1000000000 then -- by hand: one more must be a number
        new.attempt := 1000000000;
    end if;
    if (new.headers operator(pg_catalog.->>) 'penstock-report') is null then
        perform penstock._refuse_job(new.payload, new.key, new.group_key, new.priority, new.headers, null);
    else -- of an earlier attempt, within its separate limit; a new job has copied it from another
        perform penstock._refuse_job(new.payload, new.key, new.group_key, new.priority, new.headers operator(pg_catalog.-) 'penstock-report', null);
        if new.id is null then new.headers := new.headers operator(pg_catalog.-) 'penstock-report'; end if;
    end if;
    wanted := (1::bigint operator(pg_catalog.<<) (16 operator(pg_catalog.+) new.priority)) operator(pg_catalog.|) case when new.key is null then 0 else 4294967296 end
              operator(pg_catalog.|) case when new.headers operator(pg_catalog.->>) 'penstock-deadline' is null then 0 else 34359738368 end
              operator(pg_catalog.|) case when new.headers operator(pg_catalog.->>) 'penstock-holds' is null then 0 else 68719476736 end;
    if new.id is null and new.headers operator(pg_catalog.?) 'penstock-waits-for' then
        raise exception 'an INSERT cannot write a job that waits for barriers' using errcode = '23514', hint = 'use penstock.enqueue';
    elsif new.id is null and tg_op operator(pg_catalog.=) 'INSERT' and (new.headers operator(pg_catalog.->>) 'penstock-holds') is not null then
        if pg_catalog.left(new.headers operator(pg_catalog.->>) 'penstock-holds', 1) operator(pg_catalog.=) '0' then -- copied from one that is watched
            new.headers := new.headers operator(pg_catalog.||) pg_catalog.jsonb_build_object('penstock-holds', pg_catalog.ltrim(new.headers operator(pg_catalog.->>) 'penstock-holds', '0'));
        end if;
        execute pg_catalog.format('select %s($1, $2)', pg_catalog.regexp_replace(tg_argv[0], 'flags("?)$', 'barrier\1')) using (new.headers operator(pg_catalog.->>) 'penstock-holds')::bigint, new.seq;
    end if;
    if (pg_catalog.pg_sequence_last_value(tg_argv[0]::pg_catalog.regclass) operator(pg_catalog.&) wanted) operator(pg_catalog.<>) wanted then
        execute pg_catalog.format('select %s($1)', tg_argv[0]) using wanted;
    end if;
    return new;
end $function$;

-- function _begin_skip_map(queue integer, lifo boolean, ring regclass, seq regclass, in_group text, in_priority smallint, bound bigint, OUT was penstock._skip_map, OUT new penstock._skip_map, OUT snap pg_snapshot, OUT most integer, OUT ended xid8[]): schema/functions/take.sql
-- function _end_skip_map(lifo boolean, ring regclass, seen regclass, was penstock._skip_map, new penstock._skip_map, snap pg_snapshot, most integer, seqs bigint[], late int8multirange): schema/functions/take.sql
-- function _listed_slots(queue integer, lifo boolean, ring regclass): schema/functions/take.sql
-- function _newest_skip_map(queue integer, group_key text, priority smallint): schema/functions/take.sql
-- function _reposition(queue text, n integer, low bigint, slots smallint[]): schema/functions/take.sql
-- function _refuse_claim(n integer, lease interval, worker text): schema/functions/lease.sql
-- function _running(queue integer, acks bigint[]): schema/functions/lease.sql
-- function _not_moved(queue integer, leases bigint[]): schema/functions/lease.sql
-- function _extend(queue integer, leases bigint[], by interval): schema/functions/settle_leases.sql
-- function _report(queue integer, lease bigint, report jsonb): schema/functions/settle_leases.sql
-- function _reported(before jsonb, report jsonb): schema/functions/settle_leases.sql
-- function _with_report(headers jsonb, report jsonb): schema/functions/settle_leases.sql
-- function _release(queue integer, leases bigint[], after interval): schema/functions/settle_leases.sql
-- function _refuse_pause(after interval): schema/functions/settle_leases.sql
-- function _change_leases(queue integer, leases bigint[], by interval, report jsonb, of_one text, of_all text): schema/functions/settle_leases.sql
-- function _part(queue integer, leases bigint[], segment integer): schema/functions/settle_leases.sql
-- function _fail(queue integer, lease bigint, after interval, error text, final boolean): schema/functions/settle_leases.sql
-- function _where_to_begin(queue integer, key text, lowest bigint, OUT id bigint, OUT seen bigint, OUT lease bigint): schema/functions/keys.sql
-- function _note_keys(queue integer, in_group text, p integer, maps bigint, snap pg_snapshot, keys text[], ids bigint[]): schema/functions/keys.sql
-- function _noted(queue integer, keys text[]): schema/functions/keys.sql
-- function _next_place(lifo boolean, seq regclass, next regclass, lo bigint[], hi bigint[], many integer, enough boolean, INOUT at integer, INOUT pos bigint, INOUT begun integer, INOUT near bigint, INOUT edge bigint, INOUT drawn bigint, INOUT first boolean): schema/functions/keys.sql
-- function _end_late(queue integer, name text, slot integer, ctids tid[], seqs bigint[]): schema/functions/keys.sql
-- function _promote(queue integer, keys text[]): schema/functions/keys.sql
-- function _maintain(queue integer, first boolean): schema/functions/maintenance.sql
-- function _expire(queue penstock._queue, since timestamp with time zone, upto timestamp with time zone): schema/functions/maintenance.sql
-- function _wake(queue penstock._queue, since timestamp with time zone, upto timestamp with time zone): schema/functions/maintenance.sql
-- function _look_at_keys(queue penstock._queue, since timestamp with time zone, upto timestamp with time zone): schema/functions/maintenance.sql
-- function _refresh(q penstock._queue): schema/functions/maintenance.sql
-- function _maintain_storage(q penstock._queue): schema/functions/maintenance.sql
-- function _maintain_at_commit(): schema/functions/maintenance.sql
-- function _write_flags(flags regclass, raised bigint, lowered bigint): schema/functions/maintenance.sql
-- function _watch(queue integer, lowering boolean): schema/functions/maintenance.sql
-- function _await_others(): schema/functions/maintenance.sql
-- function advance_queue(name text, by interval): schema/functions/maintenance.sql
-- function _cron_field(field text, lo integer, hi integer, names text[]): schema/functions/schedules.sql
-- function _cron_next(cron text, after timestamp with time zone): schema/functions/schedules.sql
-- function schedule_bytes(queue text, name text, cron text, payload bytea, key text, group_key text, priority integer, headers jsonb, dedup_key text, kind text, skip_overlap boolean): schema/functions/schedules.sql
-- function schedule(queue text, name text, cron text, payload jsonb, key text, group_key text, priority integer, headers jsonb, dedup_key text, kind text, skip_overlap boolean): schema/functions/schedules.sql
-- function schedule(queue text, name text, cron text, payload text, key text, group_key text, priority integer, headers jsonb, dedup_key text, kind text, skip_overlap boolean): schema/functions/schedules.sql
-- function _schedule_named(queue text, name text): schema/functions/schedules.sql
-- function unschedule(queue text, name text): schema/functions/schedules.sql
-- function pause_schedule(queue text, name text): schema/functions/schedules.sql
-- function resume_schedule(queue text, name text): schema/functions/schedules.sql
-- function run_schedule(queue text, name text): schema/functions/schedules.sql
-- function _run_schedule(queue text, s penstock._schedule): schema/functions/schedules.sql
-- function _overlaps(queue text, s penstock._schedule): schema/functions/schedules.sql
-- function schedules(queue text): schema/functions/schedules.sql
-- function _job_in(segment text, lifo boolean, known tid): schema/functions/queue_ring.sql
-- function _writers_in(segment text): schema/functions/queue_ring.sql
-- function _still_in(segment text, writers text[]): schema/functions/queue_ring.sql
-- function _truncate(segment text, alive text, carry text): schema/functions/queue_ring.sql

-- _lock_again returns when to try to lock a segment again: less and less often, because the attempt hinders a pg_dump, for
-- example, which has the lock.
CREATE OR REPLACE FUNCTION penstock._lock_again(since timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
RETURN (clock_timestamp() + LEAST(GREATEST((clock_timestamp() - since), '00:00:01'::interval), '00:00:16'::interval));

-- function _to_the_end(q penstock._queue, segment text, upto bigint): schema/functions/queue_ring.sql
-- function _empty_segment(q penstock._queue, s penstock._segment): schema/functions/queue_ring.sql
-- function _carry_over(from_segment text, to_segment text, to_slot integer, most integer): schema/functions/queue_ring.sql
-- function _leave(q penstock._queue, s penstock._segment, scarce boolean, garbage bigint): schema/functions/queue_ring.sql

-- _not_yet returns whether a time is in the future, but not so far that the clock must have been set back.
CREATE OR REPLACE FUNCTION penstock._not_yet(at timestamp with time zone)
 RETURNS boolean
 LANGUAGE sql
RETURN COALESCE(((clock_timestamp() >= (at - '01:00:00'::interval)) AND (clock_timestamp() <= at)), false);

-- _look_again returns when to look again into a segment that still held jobs; null stands for at once. If the look took over 10
-- ms, it had many dead rows to step over: then the pause is two hundred times as long, at most a minute.
CREATE OR REPLACE FUNCTION penstock._look_again(began timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
RETURN CASE WHEN ((clock_timestamp() - began) > '00:00:00.01'::interval) THEN (clock_timestamp() + LEAST(((200)::double precision * (clock_timestamp() - began)), '00:01:00'::interval)) ELSE NULL::timestamp with time zone END;

-- function _in_trouble(queue penstock._queue, in_slot integer, ring text, error text, state text): schema/functions/queue_ring.sql
-- function _maintain_ring(queue text, force boolean): schema/functions/queue_ring.sql
-- function _reclaim_skip_maps(): schema/functions/queue_ring.sql
-- function _barrier_call(queue integer, barrier bigint, job bigint): schema/functions/barriers.sql
-- function _refuse_barrier(queue integer, barrier bigint, holding boolean): schema/functions/barriers.sql
-- function _barrier_state(in_barrier bigint, since bigint, OUT queue integer, OUT stage integer, OUT running bigint, OUT dead bigint, OUT counted bigint): schema/functions/barriers.sql
-- function _count_holders(queue integer, headers jsonb[], running integer, dead integer): schema/functions/barriers.sql

-- _all_hold returns the headers of a row of several jobs: the barrier that each of them holds, or null. One that is watched is
-- not like the others.
CREATE OR REPLACE FUNCTION penstock._all_hold(barriers text[])
 RETURNS jsonb
 LANGUAGE sql
 STABLE
RETURN CASE WHEN ((array_remove(barriers, (barriers)[1]) = '{}'::text[]) AND ((barriers)[1] !~~ '0%'::text)) THEN jsonb_build_object('penstock-holds', (barriers)[1]) ELSE NULL::jsonb END;

-- function _count_ends(queue integer, jobs penstock._claimed[], ended bit): schema/functions/barriers.sql
-- function _count_all(queue integer, jobs penstock._claimed[], headers jsonb, n integer): schema/functions/barriers.sql

-- _watched returns the value that the register _barrier_watched has while ends of a barrier's jobs need no notes. Of such a value
-- it returns the barrier.
CREATE OR REPLACE FUNCTION penstock._watched(n bigint)
 RETURNS bigint
 LANGUAGE sql
 STABLE
RETURN (n # ((('penstock._barrier_watched'::regclass)::oid)::bigint << 31));

-- function _not_last(headers jsonb): schema/functions/barriers.sql
-- function _recount(in_queue integer, in_barrier bigint, watched boolean, running bigint): schema/functions/barriers.sql
-- function _put_off(queue integer, at timestamp with time zone, ids bigint[], known boolean[], payloads bytea[], keys text[], group_keys text[], priorities integer[], not_befores timestamp with time zone[], headers jsonb[]): schema/functions/barriers.sql

-- _waits_for returns the barriers that a job waits for.
CREATE OR REPLACE FUNCTION penstock._waits_for(headers jsonb)
 RETURNS bigint[]
 LANGUAGE sql
 IMMUTABLE
RETURN (string_to_array((headers ->> 'penstock-waits-for'::text), ','::text))::bigint[];

-- function _turn_barriers(): schema/functions/barriers.sql
-- function _let_go(in_barrier bigint): schema/functions/barriers.sql
-- function _put_off_message(): schema/functions/publish_after.sql
-- function publish_after(queue text, waits_for bigint[], outbox text, payload anycompatible, key text, topic text, headers jsonb, id text, on_dead text): schema/functions/publish_after.sql, everybody may execute it
-- function _publish_rows(in_queue integer, ids bigint[], source regclass): schema/functions/publish_after.sql

-- _listed lists the segments to look into, by the ring's register. The one from which rows are carried over comes first, so that
-- a row that moves meanwhile is not missed. It has no search_path, so that it costs no call.
CREATE OR REPLACE FUNCTION penstock._listed(register regclass)
 RETURNS integer[]
 LANGUAGE sql
RETURN CASE pg_sequence_last_value(register) WHEN 0 THEN '{0}'::integer[] WHEN 1 THEN '{1}'::integer[] WHEN 2 THEN '{1,0}'::integer[] ELSE '{0,1}'::integer[] END;

-- function _reclaim_pair(ring text, full_bytes bigint, alive text): schema/functions/pairs.sql
-- function _reclaim_pairs(): schema/functions/pairs.sql
-- function _step_back_for_dumps(segment regclass): schema/functions/dumps.sql
-- function _dump_is_coming(segment regclass): schema/functions/dumps.sql
-- function _is_dumped(segment regclass): schema/functions/dumps.sql
-- function _make_history(q penstock._queue): schema/functions/history.sql
-- function _turn_history(q penstock._queue): schema/functions/history.sql
-- function _done_jobs(queue integer, most integer, before text, ids bigint[]): schema/functions/history.sql

-- _samples_due returns whether a round of samples is to begin or to continue. It has no search_path, so that it costs no call.
CREATE OR REPLACE FUNCTION penstock._samples_due()
 RETURNS boolean
 LANGUAGE sql
RETURN (pg_sequence_last_value('penstock._sampled'::regclass) IS DISTINCT FROM (((floor((EXTRACT(epoch FROM clock_timestamp()) / (60)::numeric)))::bigint << 34) | '17179869183'::bigint));

-- function _take_samples(): schema/functions/samples.sql
-- function _sample_queue(q penstock._queue): schema/functions/samples.sql

-- _figure returns a figure of a worker's report, 0 if that has none of the name: any client may have written it.
CREATE OR REPLACE FUNCTION penstock._figure(report jsonb, name text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
RETURN CASE WHEN ((report ->> name) ~ '^\d{1,15}$'::text) THEN ((report ->> name))::bigint ELSE (0)::bigint END;

-- function _sample_subscription(s penstock._subscription): schema/functions/samples.sql
-- function _subscription_samples(last interval): schema/functions/samples.sql
-- function keep_samples(keep interval): schema/functions/samples.sql
-- function _count_groups(queue integer, after text, most integer, upto integer): schema/functions/queue_groups.sql
-- function _retry_dead_jobs(queue integer, ids bigint[]): schema/functions/operate_jobs.sql
-- function _cancel(queue integer, ids bigint[]): schema/functions/operate_jobs.sql
-- function _cancel_in(queue integer, segment regclass, ids bigint[]): schema/functions/operate_jobs.sql
-- function _find_job(queue integer, id bigint): schema/functions/operate_jobs.sql
-- function _groups_in(segment regclass, queue integer, most integer): schema/functions/operate_jobs.sql
-- function _count_jobs(queue integer, OUT ready bigint, OUT running bigint, OUT delayed bigint, OUT waiting bigint, OUT dead bigint, OUT oldest bigint): schema/functions/operate_jobs.sql
-- function _count(queue integer, most integer): schema/functions/operate_jobs.sql
-- function _queue_named(queue text): schema/functions/manage_queues.sql
-- function set_queue(name text, max_attempts integer, max_running integer, dedup_window interval, keep_done interval, keep_done_bytes bigint, rate integer, per interval, burst integer): schema/functions/manage_queues.sql
-- function _pause_drop(): schema/functions/manage_queues.sql
-- function drop_queue(name text): schema/functions/manage_queues.sql
-- function grant_enqueuer(queue text, role name): schema/functions/manage_queues.sql
-- function grant_worker(queue text, role name): schema/functions/manage_queues.sql
-- function grant_operator(queue text, role name): schema/functions/manage_queues.sql
-- function _register(queue text, name text): schema/functions/views.sql
-- function _ring_position(queue text, OUT turn bigint, OUT slot integer): schema/functions/views.sql
-- function _queue_flags(queue text, OUT priorities smallint[], OUT keyed boolean, OUT watched boolean): schema/functions/views.sql
-- function _fast_path_mode(queue text, OUT at timestamp with time zone, OUT mode text, OUT slot integer): schema/functions/views.sql
-- function _seen_end(queue text, OUT since timestamp with time zone, OUT bound_waits boolean): schema/functions/views.sql
-- function _refuse_inboxed(message_id text, previous_id text, key text, headers jsonb, payload bytea): schema/functions/inbox.sql
-- function _check_keep(keep interval): schema/functions/inbox.sql
-- function _check_rows(n integer): schema/functions/operate_inboxes.sql
-- function inboxes(): schema/functions/operate_inboxes.sql
-- function grant_inbox_operator(consumer text, role name): schema/functions/operate_inboxes.sql
-- function _inbox_of(consumer text): schema/functions/manage_inboxes.sql
-- function create_inbox(consumer text, keep interval): schema/functions/manage_inboxes.sql
-- function set_inbox(consumer text, keep interval): schema/functions/manage_inboxes.sql
-- function drop_inbox(consumer text): schema/functions/manage_inboxes.sql
-- function grant_consumer(consumer text, role name): schema/functions/manage_inboxes.sql
-- function _inbox_name(id integer, part text): schema/functions/define_inboxes.sql
-- function _define_inbox(id integer): schema/functions/define_inboxes.sql
-- function _dispatch_inboxes(): schema/functions/define_inboxes.sql

-- Receives a message whose payload is JSON, as UTF-8. Otherwise it is like inbox_in_order_bytes.
CREATE OR REPLACE FUNCTION penstock.inbox_in_order(consumer text, key text, message_id text, previous_id text, headers jsonb, payload jsonb, wait interval DEFAULT '00:00:30'::interval)
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
AS $function$ begin
    return query select * from penstock.inbox_in_order_bytes(consumer, key, message_id, previous_id, headers, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), wait);
end $function$;
-- everybody may execute it

-- Receives a message whose payload is text, as UTF-8. Otherwise it is like inbox_in_order_bytes.
CREATE OR REPLACE FUNCTION penstock.inbox_in_order(consumer text, key text, message_id text, previous_id text, headers jsonb, payload text, wait interval DEFAULT '00:00:30'::interval)
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
AS $function$ begin
    return query select * from penstock.inbox_in_order_bytes(consumer, key, message_id, previous_id, headers, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), wait);
end $function$;
-- everybody may execute it

-- function _generated(): schema/functions/own_functions.sql
-- function _define(queue text): schema/functions/own_functions.sql
-- function _close(functions oid[]): schema/functions/own_functions.sql
-- function _own_functions(queue text): schema/functions/own_functions.sql
-- function _functions_of_queue(queue text): schema/functions/own_functions.sql
-- function _grant_own(queue text, names text[], role name): schema/functions/own_functions.sql
-- function _own(name text): schema/functions/own_functions.sql
-- function _qualified(body text): schema/functions/0_templates.sql
-- function _choose(what text, keys integer[], texts text[]): schema/functions/queue_text.sql
-- function _fill(body text, queue text): schema/functions/queue_text.sql
-- function _hidden(name text): schema/functions/queue_text.sql
-- function check_client(written_for bigint): schema/functions/clients.sql, everybody may execute it
-- function _hashes(functions oid[]): schema/functions/hashes.sql
-- function _keep_hashes(functions oid[]): schema/functions/hashes.sql
-- function _forget_hashes(functions oid[]): schema/functions/hashes.sql
-- function _hashes_of_templates(): schema/functions/hashes.sql
-- function _functions_of(queue text): schema/functions/hashes.sql
-- function _is_of(name text, queue text): schema/functions/hashes.sql
-- function _check_functions(queue text, OUT files text, OUT changed text[]): schema/functions/hashes.sql, everybody may execute it
-- function _admit(queue integer, in_group text, n integer, acks bigint[], OUT q penstock._queue, OUT g penstock._group, OUT admitted integer, OUT listed boolean, OUT crowded boolean, OUT state penstock._group_state): schema/functions/groups.sql
-- function _admitted(q penstock._queue, g penstock._group, state penstock._group_state, leases bigint[], listed boolean): schema/functions/groups.sql
-- function _after_starts(next_at timestamp with time zone, rate integer, per interval, burst integer, started integer): schema/functions/groups.sql
-- function _enqueue_unique(queue integer, seq regclass, payload bytea, group_key text, priority integer, not_before timestamp with time zone, headers jsonb, OUT id bigint, OUT known boolean): schema/functions/unique.sql
-- function _group_limits(queue integer, group_keys text[], after text, most integer): schema/functions/groups.sql
-- function _group_open(queue integer, in_group text): schema/functions/groups.sql
-- function _hold_group(queue integer, in_group text, hold_for interval, reason text): schema/functions/groups.sql
-- function _is_watched(q penstock._queue): schema/functions/groups.sql
-- function _list_leases(queue integer): schema/functions/groups.sql
-- function _lock_group(queue integer, in_group text): schema/functions/groups.sql
-- function _may_dequeue(queue integer, in_group text): schema/functions/groups.sql
-- function _note_state(s penstock._group_state, more bigint[]): schema/functions/groups.sql
-- function _numbers_of(l penstock._lease): schema/functions/groups.sql
-- function _policy(queue integer, in_group text): schema/functions/groups.sql
-- function _queue_open(queue integer): schema/functions/groups.sql
-- function _refuse_rate(rate integer, per interval, burst integer): schema/functions/groups.sql
-- function _refused_letters(queue integer, ids bigint[]): schema/functions/unique.sql
-- function _set_group(queue integer, in_group text, max_running integer, rate integer, per interval, burst integer, weight integer): schema/functions/groups.sql
-- function _state_of(queue integer, in_group text): schema/functions/groups.sql
-- function _still_held(queue integer, among bigint[], acks bigint[], OUT jobs integer, OUT leases bigint[]): schema/functions/groups.sql
-- function _tokens(next_at timestamp with time zone, rate integer, per interval, burst integer): schema/functions/groups.sql
-- function _unended(queue integer, keys text[]): schema/functions/unique.sql
-- function _weighted(queue integer, group_keys text[]): schema/functions/groups.sql

-- Notes that a consumer receives a message, and returns whether it is the first time. The note commits or rolls back with the
-- consumer's transaction. Errors: 42P01, 22023, 23514.
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

-- Lists up to n messages that are held back, those that are due first. The payload is there only if one message is asked for by
-- its id.
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

-- Receives a message of a key and returns the messages that may be processed now, in order: this one, and those that were held
-- for it. It returns none if the message came before, or if it came early and is held back for up to wait. Errors: 42P01, 22023,
-- 23514, 25001.
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

-- Runs the maintenance of an inbox, which calls also run now and then. The inbox forgets ids that are out of its window, and
-- gives their space back.
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

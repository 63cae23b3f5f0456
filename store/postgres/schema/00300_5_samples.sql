-- Samples: figures of each queue and each subscription, about once a minute, for charts of the last hours.

create sequence _sample_slot minvalue 0 maxvalue 1;
create sequence _sampled minvalue 0;
select setval('_sample_slot', 0), setval('_sampled', 17179869183);

-- Insert-only, in a ring of two segments. Once the current one is as old as samples are kept, the other one is truncated
-- and written to.
create table _sample (
    series  bigint not null,  -- the id of a queue, or that of a subscription with a minus
    at      timestamptz not null default clock_timestamp(),
    arrived bigint not null,
    ended   bigint not null,
    failed  bigint not null,
    oldest  real not null,
    dead    integer not null,
    pause   smallint not null default 0,
    slot    smallint not null default pg_sequence_last_value('_sample_slot')::smallint
) partition by list (slot);

create index on _sample (series, at);

alter table _sample enable row level security;

create table _sampling (
    one    boolean primary key default true check (one),
    keep   interval not null default '3 hours',
    turned timestamptz not null default 'epoch' -- since when the current segment is written to
);

insert into _sampling (turned) values (clock_timestamp());

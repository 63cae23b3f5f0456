-- A claim of several jobs is one row of _lease, if who claims them acks many at a time, see functions/lease.sql. It has
-- 256 places, the first of which holds none: its own number is the first one's, and odd, and from place to place it grows by 2. The
-- number of a lease with a row of its own is even, or is from before, or the lease was one of several.
create type _claimed as (
    lease      bigint,
    id         bigint,
    created_at timestamptz,
    attempt    integer,
    headers    jsonb,
    payload    bytea,
    failures   jsonb
);

alter table _lease
    add column done bit(256),    -- the places that hold no job any more, or never did
    add column jobs _claimed[],  -- null: a row of one job
    alter column attempt drop not null,
    alter column id drop not null,
    alter column created_at drop not null,
    alter column payload drop not null,
    alter column lease set default (nextval('_lease_n') << 20) | (floor(random() * 524288)::bigint << 1);

alter table _lease alter column jobs set storage external; -- to compress them takes longer than to write them

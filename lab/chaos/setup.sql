create schema business;

-- One row per key. Its lock puts the writers of a key in order, and its counter,
-- which a rollback takes back, says in which.
create table business.account (key text primary key, n bigint not null default 0) with (fillfactor = 50);

-- One row per message, written in the message's transaction.
create table business.fact (
    id     text primary key,
    key    text,
    n      bigint not null,
    topic  text not null,
    own_id boolean not null
);

-- For writers that have nothing to do with the outbox.
create table business.unrelated (at timestamptz not null default now());

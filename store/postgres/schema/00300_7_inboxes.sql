-- Inboxes: what consumers have received. The tables of each, create_inbox makes.

create table _inbox (
    id         integer generated always as identity primary key,
    consumer   text not null unique check (octet_length(consumer) between 1 and 48),
    keep       interval not null,
    created_at timestamptz not null default now()
);

-- A message that may be processed now. gap: the message before it, whose id is missing, did
-- not come in time, or was given up before. late: the message itself was reported missing, or
-- others of its key were handed over past a gap since the message before it was.
create type inboxed as (
    message_id text,
    key        text,
    headers    jsonb,
    payload    bytea,
    gap        boolean,
    missing    text,
    late       boolean
);

-- A message that is held back. previous_held: the message that it waits for has come, and is
-- held back as well; otherwise that message has not come.
create type held_message as (
    message_id    text,
    key           text,
    previous_id   text,
    previous_held boolean,
    held_at       timestamptz,
    due           timestamptz, -- when it is handed over in any case
    headers       jsonb,
    payload_bytes bigint,
    payload       bytea -- null unless one message is asked for
);

-- A message that did not come in time, or that an operator discarded. followed_by was handed
-- over in its place; came: the message was received later, and handed over late.
create type inbox_gap as (
    missing     text,
    key         text,
    followed_by text,
    reported_at timestamptz,
    discarded   boolean,
    came        boolean
);

-- Inboxes: what consumers have received. The tables of each, create_inbox makes.

create table _inbox (
    id         integer generated always as identity primary key,
    consumer   text not null unique check (octet_length(consumer) between 1 and 48),
    keep       interval not null,
    created_at timestamptz not null default now()
);

-- What may be processed now. gap: the message before it, missing, did not come in
-- time (or was given up before). late: it was reported missing itself, or since the
-- message before it was handed over others of its key were, past a gap.
create type inboxed as (
    message_id text,
    key        text,
    headers    jsonb,
    payload    bytea,
    gap        boolean,
    missing    text,
    late       boolean
);

-- A message that is held back. previous_held: what it waits for has come, and is held
-- itself; otherwise it has not come.
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

-- A message that was waited for in vain, or that somebody discarded. followed_by was
-- handed over in its place; came: it was received after all, and handed over late.
create type inbox_gap as (
    missing     text,
    key         text,
    followed_by text,
    reported_at timestamptz,
    discarded   boolean,
    came        boolean
);

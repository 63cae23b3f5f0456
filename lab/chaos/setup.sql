-- One row per key. Its lock puts the writers of a key in order, and its counter,
-- which a rollback takes back, says in which.
create table {business}account (`key` varchar(64) primary key, n bigint not null default 0) {options};

-- One row per message, written in the message's transaction.
create table {business}fact (
    id     varchar(64) primary key,
    `key`  varchar(64),
    n      bigint not null,
    topic  varchar(64) not null,
    own_id boolean not null
) {options};

-- For writers that have nothing to do with the outbox.
create table {business}unrelated (at timestamp not null default current_timestamp) {options}

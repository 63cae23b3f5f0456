-- One row per key. Its lock puts the writers of a key in order, and its counter,
-- which a rollback takes back, says in which.
create table {business}account ({tenant}`key` varchar(64), n bigint not null default 0, primary key ({by}`key`)) {options};

-- One row per message, written in the message's transaction.
create table {business}fact (
    {tenant}
    id     varchar(64),
    `key`  varchar(64),
    n      bigint not null,
    topic  varchar(64) not null,
    own_id boolean not null,
    primary key ({by}id)
) {options};

-- For writers that have nothing to do with the outbox.
create table {business}unrelated (at timestamp not null default current_timestamp) {options}

-- Kept history, see functions/history.sql.

alter table _queue
    add column keep_done       interval,                            -- null: nothing is kept of jobs that are done
    add column keep_done_bytes bigint not null default 1073741824,
    add column done_since      timestamptz[];                       -- since when each segment has been written to; null: there is no ring

alter table _lease
    add column claimed_at timestamptz, -- null where nothing is kept
    add column report     jsonb;       -- what its worker has said of it last

drop function if exists set_queue(text, int, int, interval);

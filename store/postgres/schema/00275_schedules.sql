-- A schedule can be paused, run now, and leave out a time while its last job has not ended.
alter table _schedule
    add column paused boolean not null default false,
    add column skip_overlap boolean not null default false,
    add column last_job bigint,
    add column last_group text, -- where last_job was enqueued
    add column last_priority smallint;

drop function if exists schedule_bytes(text, text, text, bytea, text, text, int, jsonb, text, text);
drop function if exists schedule(text, text, text, text, text, text, int, jsonb, text, text);
drop function if exists schedule(text, text, text, jsonb, text, text, int, jsonb, text, text);

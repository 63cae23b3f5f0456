-- +goose Up
alter table penstock_schedules add column paused integer not null default 0;
alter table penstock_schedules add column skip_overlap integer not null default 0;
alter table penstock_schedules add column last_job integer not null default 0; -- 0: it has made none

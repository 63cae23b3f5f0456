-- +goose Up
-- Queues are as on other plain tables. A schedule's job is JSON: the migration in Go that follows writes it.
alter table penstock_queues drop column created_at;
alter table penstock_dead_jobs rename column id to seq;
alter table penstock_schedules add column job text not null default '';

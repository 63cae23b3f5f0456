-- +goose Up
alter table penstock_schedules drop column group_key;
alter table penstock_schedules drop column priority;
alter table penstock_schedules drop column key;
alter table penstock_schedules drop column dedup_key;
alter table penstock_schedules drop column headers;
alter table penstock_schedules drop column payload;

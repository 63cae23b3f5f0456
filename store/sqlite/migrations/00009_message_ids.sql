-- +goose Up
-- All derived ids have a time since before the first release.
alter table penstock_outboxes drop column plain_ids;

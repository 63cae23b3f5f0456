-- +goose Up
-- The last messages of the parts of a key before its head, which gaps end, as JSON.
alter table penstock_heads add column behind text;

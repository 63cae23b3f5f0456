-- +goose Up
-- What of its range was parked or a dead letter when a replay was asked for: seqs as in ahead.
alter table penstock_replays add column others text not null default '[]';

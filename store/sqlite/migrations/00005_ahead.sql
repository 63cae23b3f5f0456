-- +goose Up

-- A slow sink's messages are settled one by one: ahead are those of which others
-- before them are not, as JSON: [[first seq, last seq], ...].
alter table penstock_subscriptions add column ahead text not null default '[]';
-- How many calls of Settle took effect, so that one whose answer was lost is not
-- carried out twice.
alter table penstock_subscriptions rename column batch to settles;

-- ahead is the same of a replay. covered and besides are what of the outbox was
-- settled when it was asked for: up to covered, and these seqs.
alter table penstock_replays add column ahead text not null default '[]';
alter table penstock_replays add column covered integer not null default 9223372036854775807;
alter table penstock_replays add column besides text not null default '[]';

-- +goose Down
alter table penstock_replays drop column besides;
alter table penstock_replays drop column covered;
alter table penstock_replays drop column ahead;
alter table penstock_subscriptions rename column settles to batch;
alter table penstock_subscriptions drop column ahead;

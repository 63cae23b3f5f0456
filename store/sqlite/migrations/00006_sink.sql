-- +goose Up

-- Since when the sink takes nothing (microseconds, 0: it takes messages), and why, as the
-- holder of that epoch said.
alter table penstock_subscriptions add column sink_epoch integer not null default 0;
alter table penstock_subscriptions add column sink_down integer not null default 0;
alter table penstock_subscriptions add column sink_error text not null default '';

-- +goose Down
alter table penstock_subscriptions drop column sink_error;
alter table penstock_subscriptions drop column sink_down;
alter table penstock_subscriptions drop column sink_epoch;

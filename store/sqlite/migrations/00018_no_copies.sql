-- +goose Up
drop table penstock_parked;
drop table penstock_parked_keys;
drop table penstock_dead_letters;
drop table penstock_holds;
drop table penstock_replays;
alter table penstock_outboxes drop column created_at;
alter table penstock_outboxes rename column retention_age to keep_age;
alter table penstock_outboxes rename column retention_bytes to keep_bytes;
alter table penstock_outboxes add column buckets integer not null default 1;
-- A subscription begins with the first message.
alter table penstock_subscriptions add column settled_to integer not null default 0;
update penstock_subscriptions set settled_to = position;
alter table penstock_subscriptions drop column position;
alter table penstock_subscriptions rename column settled_to to position;
alter table penstock_subscriptions drop column sink_down;
alter table penstock_subscriptions add column sink_down integer; -- since when the sink takes nothing; null: it takes messages
-- Another subscription reads the messages too, or they are retained.
alter table penstock_subscriptions add column keeps_settled integer not null default 0;
update penstock_subscriptions
   set keeps_settled = (select count(*) from penstock_subscriptions o where o.outbox_id = penstock_subscriptions.outbox_id) > 1
    or exists (select 1 from penstock_outboxes b where b.id = penstock_subscriptions.outbox_id and (b.keep_age <> 0 or b.keep_bytes <> 0));

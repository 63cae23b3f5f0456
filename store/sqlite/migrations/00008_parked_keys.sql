-- +goose Up

-- What is parked is parked by its key.
drop index penstock_lines_due;
alter table penstock_lines rename to penstock_parked_keys;
create index penstock_parked_keys_due on penstock_parked_keys (subscription_id, due) where due is not null;
alter table penstock_parked rename column line_id to key_id;

-- +goose Down
alter table penstock_parked rename column key_id to line_id;
drop index penstock_parked_keys_due;
alter table penstock_parked_keys rename to penstock_lines;
create index penstock_lines_due on penstock_lines (subscription_id, due) where due is not null;

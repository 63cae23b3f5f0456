-- +goose Up
alter table penstock_parked_keys rename column alone to seq;

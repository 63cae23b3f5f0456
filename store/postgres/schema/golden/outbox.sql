-- The outbox orders. As it stands in the database, with the comments of store/postgres/schema; TestGolden compares it, and
-- -update writes it.

create table penstock.orders (
    xid xid8 not null default pg_current_xact_id(),
    seq bigint not null default nextval('penstock."_orders.seq"'::regclass),
    created_at timestamp with time zone not null default clock_timestamp(),
    slot smallint not null default (pg_sequence_last_value('penstock."_orders.slot"'::regclass))::smallint,
    id text,
    key text,
    topic text not null default ''::text,
    headers jsonb,
    payload bytea not null
) partition by LIST (slot);
CREATE INDEX orders_seq_idx ON ONLY penstock.orders USING btree (seq);
CREATE INDEX orders_xid_seq_idx ON ONLY penstock.orders USING btree (xid, seq);
CREATE TRIGGER zz_validate BEFORE INSERT OR UPDATE ON penstock.orders FOR EACH ROW EXECUTE FUNCTION penstock._validate_message();
alter table penstock.orders enable always trigger zz_validate;

create table penstock."_orders.0" partition of penstock.orders FOR VALUES IN ('0') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.0" replica identity full;

create table penstock."_orders.1" partition of penstock.orders FOR VALUES IN ('1') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.1" replica identity full;

create table penstock."_orders.2" partition of penstock.orders FOR VALUES IN ('2') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.2" replica identity full;

create table penstock."_orders.3" partition of penstock.orders FOR VALUES IN ('3') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.3" replica identity full;

create table penstock."_orders.4" partition of penstock.orders FOR VALUES IN ('4') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.4" replica identity full;

create table penstock."_orders.5" partition of penstock.orders FOR VALUES IN ('5') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.5" replica identity full;

create table penstock."_orders.6" partition of penstock.orders FOR VALUES IN ('6') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.6" replica identity full;

create table penstock."_orders.7" partition of penstock.orders FOR VALUES IN ('7') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
alter table penstock."_orders.7" replica identity full;

create sequence penstock."_orders.seq";
create sequence penstock."_orders.slot" minvalue 0; -- holds 0

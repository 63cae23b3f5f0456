-- The outbox, queue and inbox that the examples share, after `penstock migrate`. If one exists already, psql reports an error and continues.
select penstock.create_outbox('orders');
select penstock.create_queue('emails');
select penstock.create_inbox('billing');

create table shop_order (id bigserial primary key, customer text not null, total int not null, mailed_at timestamptz);
create table invoice (id bigserial primary key, body jsonb not null);

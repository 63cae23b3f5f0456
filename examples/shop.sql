-- Tables, queues and outboxes of the examples. Run it after `penstock migrate`, also a second time.
do $$ begin perform penstock.create_outbox('orders'); exception when duplicate_table or unique_violation then null; end $$;
do $$ begin perform penstock.create_queue('emails'); exception when duplicate_table or unique_violation then null; end $$;
do $$ begin perform penstock.create_inbox('billing'); exception when duplicate_table or unique_violation then null; end $$;

create table if not exists shop_order (id bigserial primary key, customer text not null, total int not null, mailed_at timestamptz);
create table if not exists invoice (id bigserial primary key, body jsonb not null);

-- An order and the message about it, in one transaction.
\set customer random(1, 1000)
begin;
insert into shop_order (customer, total) values (:customer, 10);
insert into penstock.orders (key, topic, payload) values (:customer, 'order.placed', convert_to('{"total": 10}', 'UTF8'));
commit;

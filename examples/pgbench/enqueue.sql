-- A job, one at a time for each customer.
\set customer random(1, 1000)
select penstock.enqueue('emails', '{"to": "ann"}', key => (:customer)::text);

-- A sequence goes back when a failover loses what the old primary had written last, and a late ack of
-- before must not end another worker's job: the last 20 bits of a lease's number are drawn anew. It still
-- grows, and the first eight billion are exact in a double.
alter table _lease alter column lease set default (nextval('_lease_n') << 20) | floor(random() * 1048576)::bigint;

-- The time of the first message of an outbox that has no subscription.
select (select t.ts from {table} t order by t.seq limit 1), utc_timestamp(6)

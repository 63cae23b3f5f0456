-- The time of the oldest message of an outbox that has no subscription.
select min(t.ts), utc_timestamp(6)
  from {table} t

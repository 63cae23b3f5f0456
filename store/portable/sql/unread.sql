-- The time of the oldest message of an outbox that has no subscription.
select min(t.ts), clock_timestamp()
  from {table} t

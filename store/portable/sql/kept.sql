-- The first that is settled and kept, and the clock.
select (select e.ts from {schema}.entries e
         where e.subscription_id * 4 + e.state = (select min(s.id) from {schema}.subscriptions s where s.outbox_id = {outbox}) * 4 and e.ts > {since}
         order by e.ts limit 1), clock_timestamp()

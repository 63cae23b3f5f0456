-- The time of the oldest message of an outbox that has no subscription.
select (select {created} from {table} t order by t.seq limit 1), {clock}

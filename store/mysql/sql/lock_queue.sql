-- Claims of one queue take turns.
select 1 from {schema}.queues where id = {queue} for update

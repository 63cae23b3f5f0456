-- Claims that run side by side share the queue's row. What locks it waits for them.
select 1 from {schema}.queues where id = {queue} lock in share mode

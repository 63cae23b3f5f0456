-- The turn of a group that is limited, of a claim that takes turns with all others of the queue.
select turn from {schema}.turns where inbox_id = any (array[- {queue}::bigint]) and turn = {turn} for update

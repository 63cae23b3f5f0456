-- No claim is under way then, and none begins before this transaction has ended.
select turn from {schema}.turns where inbox_id = - (select q.id from {schema}.queues q where q.name = {name}) and turn < 64 order by turn for update

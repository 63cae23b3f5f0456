-- The dead letters of a queue that a query chooses, and what to do with them: see
-- queue_dead.go. {columns} are what else is wanted of them.
--   $1 queue, $2 ids, $3 key, $4 group, $5 error, $6 died before, $7 died after, $8 after id, $9 limit, $10 kind
with chosen as materialized (
    select d.queue, d.id{columns} from {schema}._dead_job d
     where d.queue = (select q.id from {schema}._queue q where q.name = $1::text)
       and ($2::bigint[] is null or d.id = any ($2)) and ($3::text is null or d.key = $3) and ($4::text is null or d.group_key = $4)
       and ($5::text is null or strpos(d.failures -> -1 ->> 'error', $5) > 0)
       and ($6::timestamptz is null or d.died_at < $6) and ($7::timestamptz is null or d.died_at > $7)
       and ($10::text is null or d.headers ->> 'penstock-kind' = $10) and d.id > $8::bigint
     order by d.id limit $9::bigint
)
{action}

delete from {schema}.dedup d
 using {schema}.queues q
 where d.queue_id - {queue} = 0 and q.id = {queue} and d.at > {since}::timestamptz - q.dedup_window / 1000 * interval '1 microsecond' and d.at <= (select clock_timestamp()) - q.dedup_window / 1000 * interval '1 microsecond'

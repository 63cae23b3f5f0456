-- Leases of the last seconds are read second by second: RocksDB does not stop at the end of a range. MariaDB 11.8 would read all of a queue's
-- deduplications, if it was not told which index to take.
select utc_timestamp(6),
       exists (select 1 from {schema}.leases l where l.queue_id = {queue} and {since} < utc_timestamp(6) - interval 8 second and l.until > {since} and l.until <= utc_timestamp(6))
       or exists (select 1 from json_table('[0,1,2,3,4,5,6,7,8]', '$[*]' columns (ago int path '$')) d
                    straight_join {schema}.leases l force index (leases_second) on l.queue_id = {queue} and l.second = to_seconds(utc_timestamp(6)) - d.ago
                   where l.until > {since} and l.until <= utc_timestamp(6)),
       exists (select 1 from {schema}.schedules s where s.queue_id = {queue} and s.next <= {by}),
       exists (select 1 from {schema}.dedup d force index (dedup_at) where d.queue_id = {queue} and d.at > {since} - interval (q.dedup_window div 1000) microsecond and d.at <= utc_timestamp(6) - interval (q.dedup_window div 1000) microsecond),
       q.policies > 0
  from {schema}.queues q
 where q.id = {queue}

-- As take, of the first {room} jobs that no other claim takes at the same time, or has taken since this one looked.
-- MySQL locks only the table that is named, and refuses to lock the list. MariaDB has no such word, and locks no list.
insert into {schema}.leases (lease, queue_id, seq, group_key, `key`, attempt, until, second, worker)
select d.lease, {queue}, t.seq, t.group_key, '', d.attempt, utc_timestamp(6) + interval {lease} microsecond, to_seconds(utc_timestamp(6) + interval {lease} microsecond), {worker}
  from json_table('[{taken}]', '$[*]' columns (lease bigint path '$[0]', seq bigint path '$[1]', attempt int path '$[2]')) d
  straight_join {jobs} t force index (primary) on t.seq = d.seq
 where t.place <> 127
   and not exists (select 1 from {schema}.leases o force index (primary) where o.queue_id = {queue} and o.seq = d.seq)
 limit {room}
   for update /*!80001 of t */ skip locked
on duplicate key update {schema}.leases.lease = {schema}.leases.lease

insert into {schema}.leases (lease, queue_id, seq, group_key, `key`, attempt, until, second, worker)
select d.lease, {queue}, t.seq, t.group_key, coalesce(t.`key`, ''), d.attempt, utc_timestamp(6) + interval {lease} microsecond, to_seconds(utc_timestamp(6) + interval {lease} microsecond), {worker}
  from json_table('[{taken}]', '$[*]' columns (lease bigint path '$[0]', seq bigint path '$[1]', attempt int path '$[2]')) d
  straight_join {jobs} t force index (primary) on t.seq = d.seq{lock}

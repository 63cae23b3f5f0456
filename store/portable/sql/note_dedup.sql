-- The jobs that come first with their dedup keys, or first again since the window has ended.
insert into {schema}.dedup as d (queue_id, dedup_key, seq, at)
select $1, n.dedup_key, n.seq, clock_timestamp()
  from unnest($2::text[], $3::bigint[]) n(dedup_key, seq)
 order by n.dedup_key
    on conflict (queue_id, dedup_key) do update set seq = excluded.seq, at = excluded.at
 where d.at <= clock_timestamp() - $4 * interval '1 microsecond'

-- Parks rows, or says what became of rows that are. A parked row is due by itself
-- only if nothing of its parked key comes before it; otherwise _adopt_release makes it due.
--   $1 subscription, $2... arrays: row ids, seqs, parked keys, message ids, keys, topics, attempts, failures, failed since,
--   $11 waits in microseconds, $12 does the wait count, $13 dead, $14 out_of_order, $15 held
insert into {schema}._adopt_row as a (subscription, row_id, seq, parked_key, message_id, key, topic, attempt, failures, failed_since, due, died_at, out_of_order, held)
select $1::bigint, x.row_id, x.seq, x.parked_key, x.message_id, x.key, x.topic, x.attempt, x.failures::jsonb, x.since,
       case when x.dead or not x.timed then null
            when not x.out_of_order and (x.seq > min(x.seq) filter (where x.timed and not x.out_of_order) over (partition by x.parked_key) or exists (
                 select from {schema}._adopt_row e
                  where e.subscription = $1::bigint and e.parked_key = x.parked_key and e.row_id <> x.row_id
                    and (e.held or e.seq < x.seq and e.died_at is null and not e.out_of_order))) then null
            else clock_timestamp() + x.wait * interval '1 microsecond' end,
       case when x.dead then clock_timestamp() end, x.out_of_order, x.held
  from unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::text[], $10::timestamptz[],
              $11::bigint[], $12::boolean[], $13::boolean[], $14::boolean[], $15::boolean[])
       x (row_id, seq, parked_key, message_id, key, topic, attempt, failures, since, wait, timed, dead, out_of_order, held)
    on conflict (subscription, row_id) do update
   set attempt = excluded.attempt, failures = excluded.failures, failed_since = excluded.failed_since, due = excluded.due,
       died_at = excluded.died_at, out_of_order = excluded.out_of_order, held = a.held or excluded.held, retry = false

insert into {schema}.entries (subscription_id, seq, bucket, ts, row_id, state, key, parked_key, hold, head, due, attempts, since, failures, died_at)
select {sub}, r.seq, r.bucket, r.ts, r.row_id, r.state, r.key, r.parked_key, r.hold, r.head, r.due, r.attempts, r.since, r.failures, r.died_at
  from jsonb_to_recordset({entries}) r(seq bigint, bucket smallint, ts timestamptz, row_id text, state smallint, key text, parked_key text, hold text, head boolean,
       due timestamptz, attempts integer, since timestamptz, failures jsonb, died_at timestamptz)

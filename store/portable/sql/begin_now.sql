insert into {schema}.entries (subscription_id, seq, bucket, ts, state) select {sub}, seq, bucket, ts, 0 from {table}

insert into {schema}.entries (subscription_id, seq, ts, state) select {sub}, seq, ts, 0 from {table}

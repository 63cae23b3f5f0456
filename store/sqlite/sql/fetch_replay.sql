select {message}{waits}
  from penstock_entries e
 cross join {table} t on t.seq = e.seq
 where e.subscription_id = {sub} and e.state > 1 and e.state = 3 and e.seq not in (select value from json_each({seqs}))
 order by e.seq
 limit {most}

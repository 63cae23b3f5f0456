  from penstock_entries e indexed by penstock_entries_by_state
 cross join {table} t on t.seq = e.seq
 where e.subscription_id = {sub} and e.state > 1 and e.state = 2
   and ({any_seq} or {e.seq in seqs})
   and ({any_id} or {t.id in ids} or coalesce(t.id, '') = '' and {e.seq in derived} and {created} in (select value from json_each({times})))
   and ({key} = '' or t.key = {key})
   and ({topic} = '' or t.topic = {topic})
   and ({error} = '' or json_valid(e.failures) and instr(json_extract(e.failures, '$[#-1].error'), {error}) > 0)
   and ({died_before} is null or e.died_at < {died_before})
   and ({died_after} is null or e.died_at > {died_after})
   and e.seq > {after}
 order by e.seq
 limit {most}

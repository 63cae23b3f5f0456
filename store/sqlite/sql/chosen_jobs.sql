h.queue_id = {queue}
   and ({all} or {h.seq in ids})
   and ({kind} = '' or json_valid(h.headers) and json_extract(h.headers, '$."penstock-kind"') = {kind})
   and ({key} = '' or h.key = {key})
   and ({group} = '' or h.group_key = {group})
   and ({error} = '' or json_valid(h.history) and instr(json_extract(h.history, '$.failures[#-1].error'), {error}) > 0)
   and ({died_before} is null or h.at < {died_before})
   and ({died_after} is null or h.at > {died_after})
   and h.seq > {from}

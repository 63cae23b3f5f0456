-- Jobs that are delayed, or have failed and wait for their next attempt, have it now. Those that wait for barriers continue to wait.
update penstock_scheduled as s set due = {clock}
 where s.queue_id = {queue} and s.due > {clock} and s.due < 9000000000000000000
   and s.seq in (select j.value from json_each({seqs}) j cross join {jobs} t on t.seq = j.value where t.id is null
                 union all
                 select t.seq from json_each({seqs}) j cross join {jobs} t on t.id = j.value)

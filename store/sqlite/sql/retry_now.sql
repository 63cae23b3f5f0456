-- Jobs that have failed and wait for their next attempt have it now.
update penstock_scheduled as s set due = {clock}
 where s.queue_id = {queue} and s.due > {clock}
   and s.seq in (select j.value from json_each({seqs}) j cross join {jobs} t on t.seq = j.value where t.id is null
                 union all
                 select t.seq from json_each({seqs}) j cross join {jobs} t on t.id = j.value)
   and exists (select 1 from penstock_histories h where h.queue_id = {queue} and h.seq = s.seq)

-- A job is known by its id: its seq, or what it was before it came back.
delete from {jobs}
 where seq in (select j.value from json_each({seqs}) j cross join {jobs} t on t.seq = j.value where t.id is null
               union all
               select t.seq from json_each({seqs}) j cross join {jobs} t on t.id = j.value)

-- A job is known by its id: its seq, or what it was before it came back.
delete from {table}
 where seq in (select j.value from json_each(?1) j cross join {table} t on t.seq = j.value where t.id is null
               union all
               select t.seq from json_each(?1) j cross join {table} t on t.id = j.value)

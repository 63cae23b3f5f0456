-- {entries} is an array of [seq, state, in order, held, head, due, attempts, since, failures, died at]. The key is as it is in the message, whatever
-- a plain INSERT has put there.
insert into penstock_entries (subscription_id, seq, state, parked_key, hold, head, due, attempts, since, failures, died_at)
select {sub}, t.seq, j.value ->> 1, case when j.value ->> 2 then cast(t.key as text) end, case when j.value ->> 3 then cast(t.key as text) end,
       j.value ->> 4, j.value ->> 5, j.value ->> 6, j.value ->> 7, j.value ->> 8, j.value ->> 9
  from json_each({entries}) j
 cross join {table} t on t.seq = j.value ->> 0

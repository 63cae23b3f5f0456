-- The keys of messages that are parked out of the outbox. Who becomes the head
-- of a key decides when it is due; a hold stays. ?3 is a JSON array of
-- [seq, microseconds until it is due, ...].
insert into penstock_parked_keys (subscription_id, key, seq, head, due)
select ?1, m.key, case m.key when '' then m.seq else 0 end, min(m.seq), ?2 + m.wait
  from (select t.seq, cast(coalesce(t.key, '') as text) as key, json_extract(j.value, '$[1]') as wait
          from json_each(?3) j
          join {table} t on t.seq = json_extract(j.value, '$[0]')) m
 group by 2, 3
    on conflict (subscription_id, key, seq) do update
   set head = excluded.head,
       due = case when penstock_parked_keys.due is null then null else excluded.due end
 where excluded.head < coalesce(penstock_parked_keys.head, excluded.head + 1)

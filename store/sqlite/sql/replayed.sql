-- Where a part of a replay ends, 0 behind the last message, and up to where messages are settled.
select coalesce((select max(m.seq) from (select t.seq from {table} t where t.seq >= {from_seq} order by t.seq limit {most}) m), 0),
       max(s.position, coalesce(json_extract(s.ahead, '$[#-1][1]'), 0))
  from penstock_subscriptions s
 where s.outbox_id = {outbox} and s.name = {name}

-- Settled messages that must be delivered again. The reader passes over the others that the request
-- has noted.
select t.seq, t.created_at, coalesce(t.id, ''), coalesce(t.key, ''), t.topic, coalesce(t.headers, ''), t.payload
  from {table} t
 where t.seq > :after and t.seq <= :last
   and t.created_at >= :from and t.created_at < :to
   and (t.seq <= :covered or t.seq in (select value from json_each(:besides)))
 order by t.seq
 limit :limit

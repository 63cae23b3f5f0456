-- Ends jobs whose deadline has passed, {late}, of those that come next in a group and have not begun. No claim is under way. A unique job may be
-- locked, because a transaction replaces it: the claim that takes it ends it. The bytes of deadlines have their order, but for some within a
-- second, which then seem to be later. A text of another form, from an INSERT, is not a deadline.
delete {jobs}
  from (select n.seq
          from (select t.seq, json_unquote(json_extract(convert(t.headers using utf8mb4), '$."penstock-deadline"')) as deadline, locate('"penstock-unique-key"', t.headers) > 0 as is_unique
                  from {jobs} t force index (claims)
                 where t.group_key = {group} and t.place <> 127 and t.ts <= utc_timestamp(6)
                   and (select l.lease from {schema}.leases l force index (primary) where l.queue_id = {queue} and l.seq = t.seq) is null
                   and (select a.seq from {schema}.tries a force index (primary) where a.queue_id = {queue} and a.seq = t.seq) is null
                 order by t.place {dir}, t.ts {dir}, t.seq {dir}
                 limit {most}) n
         where n.deadline like '____-__-__T__:__:__%Z' and cast(n.deadline as binary) <= {late} and not n.is_unique) d
  straight_join {jobs} force index (primary) on {jobs}.seq = d.seq

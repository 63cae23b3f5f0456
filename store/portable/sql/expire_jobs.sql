-- Ends jobs whose deadline has passed, {late}, of those that come next in a group and have not begun. No claim is under way. A unique job may be
-- locked, because a transaction replaces it: the claim that takes it ends it. The bytes of deadlines have their order, but for some within a
-- second, which then seem to be later. A text of another form, from an INSERT, is not a deadline.
with late as materialized (
  select n.priority, n.ts, n.seq
    from (select t.priority, t.ts, t.seq, t.headers ->> 'penstock-deadline' as deadline, t.headers ->> 'penstock-unique-key' as unique_key
            from {jobs} t
           where t.group_key = {group} and t.ts <= (select clock_timestamp())
             and (select l.lease from {schema}.leases l where l.seq = t.seq) is null
             and (select a.seq from {schema}.tries a where a.seq = t.seq) is null
           order by t.priority, t.ts {dir}, t.seq {dir}
           limit {most}) n
   where n.deadline like '____-__-__T__:__:__%Z' and n.deadline{collate} <= {late} and n.unique_key is null
)
delete from {jobs} t
 using late n
 where t.group_key = {group} and t.priority = n.priority and t.ts = n.ts and t.seq = n.seq

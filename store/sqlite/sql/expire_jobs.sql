-- Ends jobs whose deadline has passed, {late}, of those that come next in a group. The bytes of deadlines have their order, but for some within
-- a second, which then seem to be later. A text of another form, from an INSERT, is not a deadline.
delete from {jobs}
 where seq in (select n.seq
                 from (select t.seq, t.headers ->> '$."penstock-deadline"' as deadline
                         from penstock_ready r
                        cross join {jobs} t on t.seq = abs(r.rank)
                        where r.queue_id = {queue} and r.group_key = {group}
                        order by r.priority, r.rank
                        limit {most}) n
                where n.deadline like '____-__-__T__:__:__%Z' and n.deadline <= {late})

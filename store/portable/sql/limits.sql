-- What limits {group}: its policy i, or else that of all groups, and the rate of the queue as a whole. b is when its next job may start by its rate.
{schema}.group_policies i
 cross join (select {clock_micros} * 1000 as now) c
  left join lateral (select s.n, s.next from {schema}.group_starts s
                      where s.queue_id = {queue} and s.group_key = case when i.whole then '' else {group} end and s.whole = i.whole
                      order by s.n desc limit 1) b on true
 where i.queue_id = {queue} and i.group_key in ('', {group}, '*')
  and (i.whole or i.group_key = {group}
       or i.group_key = '*' and not exists (select from {schema}.group_policies o where o.queue_id = {queue} and o.group_key = {group} and not o.whole and o.policy <> ''))

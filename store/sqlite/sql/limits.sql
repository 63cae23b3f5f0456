-- What limits {group}: its policy i, or else that of all groups, and the rate of the queue as a whole. b is when its next job may start by its rate.
penstock_group_policies i
  left join penstock_group_starts b on b.queue_id = {queue} and b.group_key = case when i.whole then '' else {group} end and b.whole = i.whole
 where i.queue_id = {queue} and i.group_key in ('', {group}, '*')
  and (i.whole or i.group_key = {group}
       or i.group_key = '*' and not exists (select 1 from penstock_group_policies o where o.queue_id = {queue} and o.group_key = {group} and not o.whole and o.policy <> ''))

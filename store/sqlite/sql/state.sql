-- Before a Fetch reads: whose the lease is, is a key parked or held, is something parked due, is something to be delivered again. Mostly there are no
-- entries, and nothing else is asked. A file that lacks this reader's last Settle or message is an older copy that was put back.
select s.epoch, s.settles > {known} or s.settles = {known} and coalesce((select max(t.seq) from {table} t), 0) >= {read},
       case when s.entries then exists (select 1 from penstock_entries e where e.subscription_id = {sub} and e.parked_key is not null)
                             or exists (select 1 from penstock_entries e where e.subscription_id = {sub} and e.hold is not null) else 0 end,
       case when s.entries then exists (select 1 from penstock_entries e
                where e.subscription_id = {sub} and e.head and e.due > {since} and e.due <= {clock}
                  and not (e.parked_key is not null and exists (select 1 from penstock_entries w where w.subscription_id = {sub} and w.hold = e.parked_key))) else 0 end,
       case when s.entries then exists (select 1 from penstock_entries e where e.subscription_id = {sub} and e.state > 1 and e.state = 3) else 0 end
  from (select epoch, settles, exists (select 1 from penstock_entries where subscription_id = {sub}) as entries from penstock_subscriptions where id = {sub}) s

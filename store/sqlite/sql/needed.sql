select e.seq
  from penstock_subscriptions s
 cross join penstock_entries e on e.subscription_id = s.id
 where s.outbox_id = {outbox} and e.seq > {after} and e.seq <= {last}

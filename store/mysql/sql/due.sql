-- Heads that are due.
select h.seq, h.parked_key, h.ts, h.attempts
  from {schema}.entries h
 where h.subscription_id = {sub} and h.head = 1 and h.due <= utc_timestamp(6)
   and h.seq not in ({in_flight}) and (h.parked_key is null or not {h.parked_key in keys})
   and not (h.parked_key is not null and exists (select 1 from {schema}.entries w where w.subscription_id = {sub} and w.hold = h.parked_key))
   and exists (select 1 from {schema}.subscriptions s where s.id = {sub} and s.epoch = {epoch} and s.holder = {holder})
 order by h.due, h.seq
 limit {most}

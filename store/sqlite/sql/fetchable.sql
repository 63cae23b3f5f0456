-- State that a Fetch needs before it reads: is the lease still this reader's, is anything parked,
-- which replay is the next one.
select s.epoch,
       exists (select 1 from penstock_parked_keys k where k.subscription_id = s.id),
       coalesce((select min(r.id) from penstock_replays r where r.subscription_id = s.id and r.id > ?2), 0)
  from penstock_subscriptions s
 where s.id = ?1

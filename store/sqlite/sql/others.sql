-- What of a replay's range is parked or a dead letter when it is asked for, as JSON. It comes anyway, or a person decides about it.
select json_group_array(seq) from (
  select p.seq from penstock_parked_keys k join penstock_parked p on p.key_id = k.id
   where k.subscription_id = :subscription and p.seq > :after and p.seq <= :last
  union
  select d.seq from penstock_dead_letters d
   where d.subscription_id = :subscription and d.seq > :after and d.seq <= :last)

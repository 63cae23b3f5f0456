-- Of each of these keys the first is the head, and no other. One that becomes it is due at once, unless it was parked just now.
with first as materialized (
  select j.value as key, (select min(m.seq) from (
           select min(a.seq) as seq from penstock_entries a where a.subscription_id = {sub} and a.parked_key = j.value and a.head = 1
           union all
           select min(b.seq) from penstock_entries b where b.subscription_id = {sub} and b.parked_key = j.value and b.head = 0) m) as seq
    from json_each({keys}) j
)
update penstock_entries
   set due = case when head or seq in (select value from json_each({fresh})) then due else {clock} end, head = not head
 where subscription_id = {sub}
   and seq in (select r.seq from first r cross join penstock_entries e on e.subscription_id = {sub} and e.seq = r.seq where e.head = 0
               union all
               select e.seq from first r cross join penstock_entries e on e.subscription_id = {sub} and e.parked_key = r.key and e.head = 1 where e.seq <> r.seq)

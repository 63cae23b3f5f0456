update penstock_entries
   set due = {clock}
 where subscription_id = {sub} and head and due > {clock} and ({all} or {parked_key in keys})
   and not (parked_key is not null and exists (select 1 from penstock_entries w where w.subscription_id = {sub} and w.hold = penstock_entries.parked_key))

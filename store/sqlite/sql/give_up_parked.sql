update penstock_entries
   set due = {clock}, failures = {failures}
 where subscription_id = {sub} and {seq in seqs} and state = 1 and head and due > {clock}
   and not (parked_key is not null and exists (select 1 from penstock_entries w where w.subscription_id = {sub} and w.hold = penstock_entries.parked_key))

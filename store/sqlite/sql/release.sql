update penstock_entries indexed by penstock_entries_by_key set due = {clock} where subscription_id = {sub} and head = 1 and {parked_key in keys}

update penstock_entries set state = 1, head = 1, due = {clock}, died_at = null where subscription_id = {sub} and {seq in seqs}

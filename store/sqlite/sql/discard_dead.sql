delete from penstock_entries where subscription_id = {sub} and {seq in seqs}

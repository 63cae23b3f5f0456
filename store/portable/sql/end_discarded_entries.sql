delete from {schema}.entries where subscription_id = {sub} and {seq in seqs} and exists (select from {schema}.subscriptions where id = {sub} and not keeps_settled)

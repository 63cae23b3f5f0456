delete from {schema}.entries
 where {seq in seqs} and subscription_id in (select s.id from {schema}.subscriptions s where s.outbox_id = {outbox})

-- Messages that are not needed any more. If another subscription reads them or they are retained, Maintain does it.
delete from {table}
 where {seq in seqs} and exists (select 1 from penstock_subscriptions where id = {sub} and not keeps_settled)

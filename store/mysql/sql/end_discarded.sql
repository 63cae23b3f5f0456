delete {table} from {these_seqs} straight_join {table} force index (primary) on {table}.seq = d.seq
 where exists (select 1 from {schema}.subscriptions s where s.id = {sub} and not s.keeps_settled)

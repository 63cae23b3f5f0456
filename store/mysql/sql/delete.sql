-- One by one by the primary key, here and wherever rows are changed. Of few rows MySQL walks over all of a table for an in (…), and waits for
-- every lock on other rows.
delete {table} from {rows} straight_join {table} force index (primary) on {table}.seq = d.seq and {table}.ts = d.ts
 where exists (select 1 from {schema}.subscriptions s where s.id = {sub} and not s.keeps_settled)
   and {allowed}

-- The other statements of the transaction use indexes, and are planned once.
select {by_index} and {by_plan}

-- The other statements of the transaction use indexes.
select {by_index}

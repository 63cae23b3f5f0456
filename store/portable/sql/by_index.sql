-- What follows in the transaction goes along indexes.
select {by_index}

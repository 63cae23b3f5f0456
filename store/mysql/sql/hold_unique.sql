-- Rows that stand for unique keys are locked until the transaction ends. They are written, because a cluster compares only what is.
insert into {schema}.turns (inbox_id, turn, taken)
select -{queue}, d.seq, 1 from {these_turns}
    on duplicate key update {schema}.turns.taken = {schema}.turns.taken + 1

-- Where rows that others have locked can be skipped, claims of a queue run side by side.
insert into {schema}.turns (inbox_id, turn) select -{queue}::bigint, n from generate_series(0, 63) n where {side_by_side} on conflict do nothing

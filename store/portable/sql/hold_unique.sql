-- Rows that stand for unique keys are locked until the transaction ends. It writes them, so that one with an older snapshot fails.
insert into {schema}.turns (inbox_id, turn)
select - {queue}::bigint, n.turn::smallint from unnest({turns}::bigint[]) n(turn) order by n.turn
    on conflict (inbox_id, turn) do update set turn = excluded.turn

-- Takes the aircraft's row lock and its next turn: another transaction that needs a turn of this
-- aircraft waits until we commit or roll back. MySQL has no RETURNING: turn.sql reads the turn.
insert into demo.aircraft (tailnum, flights) values (?, 1)
on duplicate key update flights = flights + 1

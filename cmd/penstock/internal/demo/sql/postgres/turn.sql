-- Takes the aircraft's row lock and its next turn: another transaction that needs a turn of this
-- aircraft waits until we commit or roll back.
insert into aircraft (tailnum, flights) values ($1, 1)
on conflict (tailnum) do update set flights = aircraft.flights + 1
returning flights

-- The transaction was begun IMMEDIATE, so it is the only writer already.
insert into demo_aircraft (tailnum, flights) values (?, 1)
on conflict (tailnum) do update set flights = flights + 1
returning flights

drop table if exists demo_flights;
drop table if exists demo_aircraft;

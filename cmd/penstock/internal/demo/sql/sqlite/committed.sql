select id, coalesce(tailnum, ''), turn from demo_flights order by id

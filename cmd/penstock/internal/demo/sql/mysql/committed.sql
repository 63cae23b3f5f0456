select id, coalesce(tailnum, ''), turn from demo.flights order by id

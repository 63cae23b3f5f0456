select id, coalesce(tailnum, ''), turn from flights order by id

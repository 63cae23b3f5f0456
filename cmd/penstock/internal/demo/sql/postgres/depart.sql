insert into flights (id, scheduled_departure, carrier, flight, tailnum, turn, origin, dest,
                     dep_time, dep_delay_min, arr_delay_min, distance_mi)
values ($1, $2, $3, $4, nullif($5, ''), $6, $7, $8, $9, $10, $11, $12)

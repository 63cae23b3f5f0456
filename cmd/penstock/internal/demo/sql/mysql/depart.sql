insert into demo.flights (id, scheduled_departure, carrier, flight, tailnum, turn, origin, dest,
                          dep_time, dep_delay_min, arr_delay_min, distance_mi)
values (?, ?, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?)

-- It keeps its place, and begins with its first attempt.
update {jobs} set payload = {payload}, headers = {headers} where seq = {job};

delete from penstock_histories where queue_id = {queue} and seq = {job}

-- A dead letter keeps its row, at the place 127.
select seq from {jobs} where seq = {job} and place <> 127

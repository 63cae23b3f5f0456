-- The row of a job that has not ended: of its id, its seq or what it was before it came back.
select seq from {jobs} where seq = {job} and id is null
 union all
select seq from {jobs} where id = {job}

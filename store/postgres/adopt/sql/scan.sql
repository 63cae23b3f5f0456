-- All rows that are not out of band, without their content, in order as far as there is one.
--   $1 limit, $2 subscription
select {narrow} from {table} t
 where {pending} and not exists (select from {schema}._adopt_row r where r.subscription = $2 and r.row_id = ({rowid}) collate "C")
 order by {scanorder} limit $1

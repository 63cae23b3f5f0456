-- Without another name for the table: with one MariaDB needs a connection that has a database.
delete {source} from {rows} straight_join {source}{hint} on {source_row}
 where {allowed}

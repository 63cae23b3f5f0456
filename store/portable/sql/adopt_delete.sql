delete from {source} r
 using {rows}
 where {row} and {allowed}

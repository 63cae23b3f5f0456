with gone as (delete from {table} t using unnest({arrays}) x ({xs}) where {same} returning {all})
insert into {archive} ({allnames}) overriding system value select * from gone

-- Whether the role may delete from table $1.
select has_table_privilege($1::oid, 'delete')

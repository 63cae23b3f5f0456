insert into {schema}.received (inbox_id, id, at)
select {inbox}, value, {clock} from json_each({ids}) where true
on conflict do nothing
returning id

insert into {jobs} (seq, group_key, priority, not_before, key, headers, payload)
select coalesce(n.seq, nextval({ids})), n.group_key, n.priority, n.not_before, n.key, n.headers, n.payload
  from unnest($1::bigint[], $2::text[], $3::smallint[], $4::timestamptz[], $5::text[], $6::jsonb[], $7::bytea[])
       with ordinality n(seq, group_key, priority, not_before, key, headers, payload, place)
 order by n.place
returning seq

-- How many messages a replay is of, and between which seqs they are.
select count(*), coalesce(min(t.seq), 0), coalesce(max(t.seq), 0)
  from {table} t
 where t.seq > :after and t.seq <= :last
   and t.created_at >= :from and t.created_at < :to
   and (t.seq <= :covered or t.seq in (select value from json_each(:besides)))
   and t.seq not in (select value from json_each(:others))

-- By the primary key, so that no gap is locked.
select t.seq from {these_seqs} straight_join {jobs} t force index (primary) on t.seq = d.seq where {t.`key` in keys} for update /*!80001 of t */

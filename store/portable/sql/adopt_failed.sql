-- The failure as the user's own columns tell it.
update {source} r
   set {failed}
  from unnest({times}::timestamptz[], {row_ids}::text[], {errors}::text[], {attempts}::integer[]) d(ts, row_id, error, attempts)
 where {row}

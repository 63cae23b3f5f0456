cross join (select {waiting}::bigint as backlog, {waiting_since}::timestamptz as oldest) b

select seq from {jobs} where seq = any (array[{job}::bigint])

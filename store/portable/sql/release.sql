update {schema}.entries
   set due = clock_timestamp()
 where subscription_id = $1 and head and line = any ($2::text[])

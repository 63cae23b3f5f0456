-- For MySQL bytes are not JSON, and bytes that are not UTF-8 are null.
check (headers is null or coalesce(json_valid(convert(headers using utf8mb4)) and json_type(convert(headers using utf8mb4)) = 'OBJECT', false))

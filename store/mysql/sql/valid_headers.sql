-- MySQL takes bytes for no JSON, and what is no UTF-8 for null.
check (headers is null or coalesce(json_valid(convert(headers using utf8mb4)) and json_type(convert(headers using utf8mb4)) = 'OBJECT', false))

-- How many jobs of {group} may start now.
coalesce((select min({room_by}) from {limits}), 2147483647)

-- Messages of a key take turns.
select taken from {schema}.turns where inbox_id = {inbox} and turn = {turn} for update

-- What each function was when it was made, see functions/hashes.sql.
create table if not exists _function_hash (
    name text collate "C" primary key, -- with the types of its arguments
    hash text not null
);

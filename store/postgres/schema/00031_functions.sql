-- What the functions of this database were made from: one row, see functions/.

create table _functions (
    hash       text not null,
    applied_at timestamptz not null default now()
);

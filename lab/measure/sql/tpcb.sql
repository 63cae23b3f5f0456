-- A business: pgbench's tables and its TPC-B-like transaction.

-- name: create
create table {schema}.{branches} (bid int not null primary key, bbalance int, filler char(88));
create table {schema}.{tellers} (tid int not null primary key, bid int, tbalance int, filler char(84));
create table {schema}.{accounts} (aid int not null primary key, bid int, abalance int, filler char(84));
create table {schema}.{history} (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
insert into {schema}.{branches} select n, 0, '' from generate_series(1, {scale}) n;
insert into {schema}.{tellers} select n, (n - 1) / 10 + 1, 0, '' from generate_series(1, {scale} * 10) n;
insert into {schema}.{accounts} select n, (n - 1) / {each} + 1, 0, '' from generate_series(1, {scale} * {each}) n;
analyze {schema}.{branches}, {schema}.{tellers}, {schema}.{accounts};

-- name: drop
drop table if exists {schema}.{branches}, {schema}.{tellers}, {schema}.{accounts}, {schema}.{history};

-- name: rest
select count(*) from {schema}.{history};

-- name: update_account
update {schema}.{accounts} set abalance = abalance + $2::int where aid = $1::int;

-- name: balance
select abalance from {schema}.{accounts} where aid = $1::int;

-- name: update_teller
update {schema}.{tellers} set tbalance = tbalance + $2::int where tid = $1::int;

-- name: update_branch
update {schema}.{branches} set bbalance = bbalance + $2::int where bid = $1::int;

-- name: remember
insert into {schema}.{history} (tid, bid, aid, delta, mtime) values ($1::int, $2::int, $3::int, $4::int, current_timestamp);

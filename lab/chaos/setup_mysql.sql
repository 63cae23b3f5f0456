create database business;

create table business.account (`key` varchar(64) primary key, n bigint not null default 0) engine = {engine};

create table business.fact (
    id     varchar(64) primary key,
    `key`  varchar(64),
    n      bigint not null,
    topic  varchar(64) not null,
    own_id boolean not null
) engine = {engine};

create table business.unrelated (id bigint auto_increment primary key, at datetime(6) not null default current_timestamp(6)) engine = {engine};

create user producer@'%';

grant all on *.* to producer@'%';

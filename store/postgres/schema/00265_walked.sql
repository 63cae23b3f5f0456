-- How far claims came that found only jobs whose keys must wait, see {take_keyed}: seq * 1024 + segment.
alter table _skip_map add walked bigint;

-- Of a queue's functions most take the queue now, and are there once.
drop function if exists _choose(text, text[], text[]), _with_leaves(text), _with_segments(text, text), _for_segments(text, text, text, int), _job_columns(), _slots(text),
    _short_way(text), _newest_way(), _take_function(), _take_branch(), _batch_way(), _short_claim(), _operate_functions(), _upkeep_functions(), _define_jobs(text),
    _work(int, text, bigint[], interval), _fail(int, bigint, interval, text, boolean);

-- Contents of the columns of the tables that an administrator looks into: \d+ shows them.

comment on table _queue is 'One row for each queue, with its settings. set_queue, pause_queue and resume_queue change it.';
comment on column _queue.id is 'the number that stands for the queue in other tables; it is not given again after drop_queue';
comment on column _queue.name is 'also the name of the table of its jobs';
comment on column _queue.lifo is 'whether the newest job comes first';
comment on column _queue.segment_bytes is 'another segment is written to once the current one, with TOAST, is this large';
comment on column _queue.max_attempts is 'a job whose attempt of this number fails is a dead letter';
comment on column _queue.paused is 'claim and dequeue return no job, see pause_queue';
comment on column _queue.max_running is 'how many jobs may be claimed at a time; null: no limit';
comment on column _queue.rate is 'how many jobs may start in the time per; null: no limit';
comment on column _queue.per is 'see rate';
comment on column _queue.burst is 'how many jobs may start at once after a pause; null: 1';
comment on column _queue.dedup_window is 'how long a dedup key stands for the job that came first';
comment on column _queue.keep_done is 'how long done jobs are kept; null: not at all';
comment on column _queue.keep_done_bytes is 'how large the done jobs may become; the oldest go first';
comment on column _queue.done_since is 'since when each segment of the done jobs has been written to, by slot; null: the queue has never kept any';

comment on table _segment is 'The segments of each queue that are in use; one without a row is empty. A segment is written to, then listed, then retired, and truncated at last.';
comment on column _segment.queue is 'id in _queue';
comment on column _segment.slot is 'the segment is the table _NAME.SLOT';
comment on column _segment.turn is 'the order in which segments came into use; jobs of a lower turn come first in a FIFO';
comment on column _segment.writers is 'transactions that may still commit jobs into it after it was left behind, as in pg_locks.virtualtransaction; it stays listed until they have ended; null: not looked up yet';
comment on column _segment.looked is 'when writers was looked up';
comment on column _segment.rest is 'how many jobs it had when they were counted last';
comment on column _segment.leaving is 'its jobs are being carried over to the next segment';
comment on column _segment.job is 'the place of a job that a long search found: while it is there, maintenance does not search again';
comment on column _segment.retired is 'since when jobs are not taken from it any more: it has none, and waits for its TRUNCATE; null: it is listed';
comment on column _segment.again is 'maintenance does not look into it, or lock it, before this time';
comment on column _segment.trouble is 'the error with which its maintenance failed last; null once it has succeeded';

comment on table _pair is 'One row for each ring of two segments that all queues share: the state that its register (_lease_slot, for example) does not hold.';
comment on column _pair.name is 'the table whose two segments these are';
comment on column _pair.retired is 'since when the segment that is not written to has held no row that counts';
comment on column _pair.again is 'maintenance does not look at the ring before this time';
comment on column _pair.writers is 'as in _segment: transactions that may still commit rows into the segment that was left behind';
comment on column _pair.trouble is 'the error with which its maintenance failed last; null once it has succeeded';

comment on table _sampling is 'One row: how samples of queues and subscriptions are taken. keep_samples changes it.';
comment on column _sampling.keep is 'for how long samples are kept at least; 0: none are taken';
comment on column _sampling.turned is 'since when the current segment of _sample is written to';

comment on table _sample is 'Figures of each queue and subscription, about once a minute: for charts.';
comment on column _sample.series is 'an id in _queue; below zero one in _subscription';
comment on column _sample.arrived is 'the last number that a message or a job was given';
comment on column _sample.ended is 'messages that were settled, or jobs that were done as workers report them; it grows';
comment on column _sample.failed is 'attempts at jobs that failed, as workers report them; it grows';
comment on column _sample.oldest is 'seconds since the oldest unsettled message was written, or the oldest ready job; 0: there is none';
comment on column _sample.pause is 'how many samples repeat oldest, because the search for it took long';
comment on column _sample.done is 'how long done jobs took since the sample before, in a queue that keeps them: all, and by kind and worker';
comment on column _sample.dead is 'dead letters, counted up to 1,000';

comment on table _group is 'The policies of groups: how many jobs of a group may run and start, and how much it weighs.';
comment on column _group.queue is 'id in _queue';
comment on column _group.group_key is 'the group; * stands for each that has no row';
comment on column _group.max_running is 'how many jobs may be claimed at a time; null: no limit';
comment on column _group.rate is 'how many jobs may start in the time per; null: no limit';
comment on column _group.per is 'see rate';
comment on column _group.burst is 'how many jobs may start at once after a pause; null: 1';
comment on column _group.weight is 'how often the group comes in a turn of ready_groups; null: 1';

comment on column _group_state.queue is 'id in _queue; below zero it is the state of the queue as a whole, whose group is empty';
comment on column _group_state.n is 'of a group the row with the highest n is true';
comment on column _group_state.slot is 'the segment: _group_state_0 or _group_state_1';
comment on column _group_state.next_at is 'when the next job would start if all were evenly spread at the rate; null: none has started yet';
comment on column _group_state.held_until is 'no job of the group starts before; null: it is not held';
comment on column _group_state.reason is 'why the group is held';
comment on column _group_state.leases is 'leases of a group that has a limit: those that the claim took which wrote the row or, if since is null, all that were held then';
comment on column _group_state.since is 'the leases of the group are those of the rows with this n and above; null: those of this row';

comment on table _barrier is 'Changes and counts of barriers, and the jobs that wait for them.';
comment on column _barrier.barrier is 'the number that penstock.barrier has returned';
comment on column _barrier.n is 'of a barrier the row of part 16 with the highest n is true, and that of part 0 with all of part -1 that have a higher n';
comment on column _barrier.xid is 'the transaction that wrote the row, which sees to its notes when it commits';
comment on column _barrier.queue is 'id in _queue';
comment on column _barrier.part is '0: the jobs that hold the barrier; 16: the barrier; 17: a job that waits for it. -1: a change of how many jobs hold it. -17: it is sealed';
comment on column _barrier.running is 'how many jobs that hold the barrier have not ended and are not dead; of part 16: 0 made, 1 sealed, 2 open; of part 17: the job that waits';
comment on column _barrier.dead is 'how many jobs that hold the barrier are dead letters';
comment on column _barrier.slot is 'the segment: _barrier_0 or _barrier_1';

comment on column _lease.listed is 'true: it is one of the leases in _group_state; else the group had no limit when the job was claimed';
comment on column _lease.lease is 'the number that ack, extend and the like take: a value of the sequence _lease_n, and random bits behind it. Of a row of several jobs it is odd: the job in place i has this number + 2 * i';
comment on column _lease.queue is 'id in _queue; below zero the row holds no job: it is a worker''s report of itself, and lease_until is how long the worker counts as alive without another one';
comment on column _lease.attempt is 'the number of this attempt, from 1; null in a row of several jobs, as are id, created_at, key, payload and failures';
comment on column _lease.lease_until is 'when the lease ends; the next maintenance puts the job back then';
comment on column _lease.id is 'the id of the job';
comment on column _lease.created_at is 'when the job was enqueued';
comment on column _lease.headers is 'the headers of the job; in a row of several jobs penstock-holds, if all of them hold the same barrier, else null';
comment on column _lease.slot is 'the segment: _lease_0 or _lease_1';
comment on column _lease.worker is 'the name that the caller of claim gave; empty without one';
comment on column _lease.failures is 'the last ten failed attempts: attempt, error, at';
comment on column _lease.done is 'of a row of several jobs: a bit for each of 256 places, set if the place holds no job any more, or never held one. 256 - bit_count(done) jobs are left';
comment on column _lease.jobs is 'the jobs of one claim, also those that are done; null: a row of one job';
comment on column _lease.claimed_at is 'when the jobs were claimed; null: by an older version';
comment on column _lease.report is 'the last report of its worker';

comment on column _scheduled.id is 'the id of the job. In a row whose queue is below zero: a hash of the key';
comment on column _scheduled.queue is 'id in _queue; below zero the row holds no job: it asks maintenance to look which job of the key is next';
comment on column _scheduled.attempt is 'how many attempts the job has had; -1: none that counts, but it has begun and was released, and later jobs of its key wait for it';
comment on column _scheduled.due is 'when the job may run; infinity: it waits until an earlier job of its key has ended; -infinity: it waits for barriers';
comment on column _scheduled.created_at is 'when the job was enqueued';
comment on column _scheduled.priority is 'that of the job; 16: a message that waits for barriers';
comment on column _maintenance.slot is 'the segment: _maintenance_0 or _maintenance_1';
comment on column _scheduled.slot is 'the segment: _scheduled_0 or _scheduled_1';
comment on column _scheduled.failures is 'the last ten failed attempts: attempt, error, at';

comment on column _skip_map.queue is 'id in _queue; below zero the row says of a key, its group_key, where a search begins: see _where_to_begin';
comment on column _skip_map.n is 'of a queue, group and priority the row with the highest n is true';
comment on column _skip_map.base is 'up to this seq the skip map is complete: where it shows no job, none is left';
comment on column _skip_map.seen is 'where the sequence of the queue stood before xid was drawn: the base of the next skip map, once xid has ended';
comment on column _skip_map.xid is 'each transaction that drew a seq up to seen has a lower xid';
comment on column _skip_map.turn is 'the register ring of the queue (turn * 1024 + slot) when slots was made. With another value slots is made anew. Below zero: the next call writes a skip map';
comment on column _skip_map.slot is 'the segment: _skip_map_0 or _skip_map_1';
comment on column _skip_map.lo is 'jobs may be where lo[i] <= seq <= hi[i], for any i. Of a key: the register _skip_map_slot then';
comment on column _skip_map.hi is 'see lo';
comment on column _skip_map.pending is 'transactions that had not ended: their jobs may be elsewhere, and are looked for by xid once they have ended';
comment on column _skip_map.slots is 'the segments that may hold jobs, in the order in which they are looked into';

comment on table _dead_job is 'The dead letters of all queues: jobs that have used up their attempts, until retry_dead_jobs or discard_dead_jobs.';
comment on column _dead_job.queue is 'id in _queue';
comment on column _dead_job.id is 'the id of the job, which it keeps if it is retried';
comment on column _dead_job.priority is 'that of the job; 16: a message that waited for barriers';
comment on column _dead_job.attempt is 'how many attempts it has had';
comment on column _dead_job.created_at is 'when the job was enqueued';
comment on column _dead_job.died_at is 'when its last attempt failed';
comment on column _dead_job.failures is 'the last ten failed attempts: attempt, error, at';

comment on table _dedup is 'The dedup keys that jobs were enqueued with, until dedup_window of the queue is over.';
comment on column _dedup.queue is 'id in _queue';
comment on column _dedup.id is 'the id of the job that came first, which a later enqueue with the key returns';
comment on column _dedup.at is 'when that job was enqueued';
comment on column _dedup.slot is 'the segment: _dedup_0 or _dedup_1';

comment on table _schedule is 'The periodic jobs of all queues.';
comment on column _schedule.queue is 'id in _queue';
comment on column _schedule.next is 'when the next job is due; maintenance enqueues it then';
comment on column _schedule.paused is 'its jobs are left out';
comment on column _schedule.skip_overlap is 'a job is left out while the one before has not ended';
comment on column _schedule.last_job is 'the id of the job that was enqueued last';

comment on sequence _lease_slot is 'register: the segment of _lease that is written to; + 2: the other one is still read';
comment on sequence _scheduled_slot is 'register: the segment of _scheduled that is written to; + 2: the other one is still read';
comment on sequence _dedup_slot is 'register: the segment of _dedup that is written to; + 2: the other one is still read';
comment on sequence _maintenance_slot is 'register: the segment of _maintenance that is written to; + 2: the other one is still read';
comment on sequence _group_state_slot is 'register: the segment of _group_state that is written to; + 2: the other one is still read';
comment on sequence _barrier_slot is 'register: the segment of _barrier that is written to; + 2: the other one is still read';
comment on sequence _skip_map_slot is 'register: how often the ring of skip maps has turned; modulo 2, the segment that is written to';
comment on sequence _cursor_slot is 'register: the segment of _cursor that is written to';
comment on sequence _parked_slot is 'register: the segment of _parked that is written to';
comment on sequence _parked_key_slot is 'register: the segment of _parked_key that is written to';
comment on sequence _sample_slot is 'register: the segment of _sample that is written to';
comment on sequence _sampled is 'register: minute * 2^34 + the queue or subscription that was sampled last; all 34 bits: the round of this minute is over';
comment on sequence _lease_n is 'counts leases: the upper bits of their numbers';
comment on sequence _skip_map_n is 'orders the rows of _skip_map';
comment on sequence _group_state_n is 'orders the rows of _group_state';
comment on sequence _barrier_n is 'orders the rows of _barrier';
comment on sequence _barrier_watched is 'register: the barrier of which ends need no notes, and the oid of the register from bit 31 on';
comment on sequence _cursor_n is 'orders the rows of _cursor';
comment on sequence _parked_p is 'orders the rows of _parked, in steps of 2^20';
comment on sequence _parked_key_n is 'orders the rows of _parked_key';

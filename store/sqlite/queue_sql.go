package sqlite

import _ "embed"

// Statements about queues. {table} stands for the quoted table of a queue.
var (
	//go:embed sql/create_queue.sql
	createQueueSQL string
	//go:embed sql/drop_queue.sql
	dropQueueSQL string
	//go:embed sql/set_queue.sql
	setQueueSQL string
	//go:embed sql/queue_status.sql
	queueStatusSQL string
	//go:embed sql/queue_groups.sql
	queueGroupsSQL string

	//go:embed sql/known_dedup.sql
	knownDedupSQL string
	//go:embed sql/note_dedup.sql
	noteDedupSQL string

	//go:embed sql/claimable.sql
	claimableSQL string
	//go:embed sql/claim.sql
	claimSQL string
	//go:embed sql/ready_groups.sql
	readyGroupsSQL string
	//go:embed sql/ready_of_groups.sql
	readyOfGroupsSQL string
	//go:embed sql/take_ready.sql
	takeReadySQL string
	//go:embed sql/lease.sql
	leaseSQL string
	//go:embed sql/occupy.sql
	occupySQL string
	//go:embed sql/leave_keyed.sql
	leaveKeyedSQL string

	//go:embed sql/ack.sql
	ackSQL string
	//go:embed sql/extend.sql
	extendSQL string
	//go:embed sql/held_lease.sql
	heldLeaseSQL string
	//go:embed sql/remember.sql
	rememberSQL string
	//go:embed sql/dead_letter_jobs.sql
	deadLetterJobsSQL string
	//go:embed sql/cancel.sql
	cancelSQL string

	//go:embed sql/housekeeping.sql
	housekeepingSQL string
	//go:embed sql/expired.sql
	expiredSQL string
	//go:embed sql/due_jobs.sql
	dueJobsSQL string
	//go:embed sql/wake_keyed.sql
	wakeKeyedSQL string
	//go:embed sql/wake.sql
	wakeSQL string
	//go:embed sql/forget_dedup.sql
	forgetDedupSQL string

	//go:embed sql/due_schedules.sql
	dueSchedulesSQL string
	//go:embed sql/set_schedule.sql
	setScheduleSQL string
	//go:embed sql/schedules.sql
	schedulesSQL string

	//go:embed sql/chosen_jobs.sql
	chosenJobsSQL string
	//go:embed sql/dead_jobs.sql
	deadJobsSQL string
	//go:embed sql/retry_jobs.sql
	retryJobsSQL string
	//go:embed sql/retry_histories.sql
	retryHistoriesSQL string
)

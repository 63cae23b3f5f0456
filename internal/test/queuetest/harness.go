package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// Harness is the contribution of a store's test package to the suite.
type Harness struct {
	// Open makes a database with the store's tables and no queue, and opens a
	// store on it. It is called once per test, from parallel tests too, fails t
	// if it cannot, and leaves nothing behind once t's cleanups have run.
	Open func(t testing.TB) Instance
	// OpenCreated, if a store has it, is called instead: it makes a database with the queue
	// called Queue, where making that takes long and such a database can be copied.
	OpenCreated func(t testing.TB, order penstock.QueueOrder) Instance
	Features    Features
	// Groups, if given, are the only ones that run: for what has a part of a store.
	Groups []string
	// Only, if given, is for a store that passes the whole suite under other conditions
	// already: what this one can change, see conditions.go. In the long form all cases run.
	Only Cases
	// Elsewhere, if given, has the cases that the store passes under harder conditions already. In the long form all cases run.
	Elsewhere Cases
}

// Queue is the name that tests use when the name does not matter.
const Queue = queue

// open opens a database with a queue.
func (h Harness) open(t testing.TB, order penstock.QueueOrder) Instance {
	t.Helper()
	if h.OpenCreated != nil {
		return h.OpenCreated(t, order)
	}
	i := h.Open(t)
	if i.Store == nil {
		return i // newEnv says so
	}
	if err := i.Store.CreateQueue(t.Context(), queue, order); err != nil {
		t.Fatalf("CreateQueue: %v", err)
	}
	return i
}

// Features are the abilities of the store or its database. The tests of a feature
// that is false are skipped and say so.
type Features struct {
	// ConcurrentWriters: two writing transactions can be open at once, and jobs are claimed and ended
	// meanwhile. Where false, a second writer waits until the open transaction ends.
	ConcurrentWriters bool
	// Reclaim: QueueStatus.Bytes falls back to the size of an empty queue once
	// every job has ended and Maintain has run a few times.
	Reclaim bool
	// Snapshots: Instance.Pin is given.
	Snapshots bool
	// Reads: Instance.Reads is given.
	Reads bool
	// Options: jobs may have MaxAttempts and Deadline. Where false, they are refused.
	Options bool
	// OptionsInServer: the database checks most of a job's options, so a wrong one ends the transaction.
	OptionsInServer bool
	// Unique: jobs may have a UniqueKey. Where false, it is refused.
	Unique bool
	// Barriers: the queues are driver.BarrierQueues. Where false, a job that has barriers is refused.
	Barriers bool
	// WaitingMessages: the queues are driver.WaitingPublishers, and the store also has outboxes.
	WaitingMessages bool
	// WorkTx: Instance.WorkTx is given.
	WorkTx bool
	// Forward: Instance.Forwarder and Disturb are given, and the store also has outboxes.
	Forward bool
}

// Instance is one database and a store on it.
type Instance struct {
	Store driver.QueueStore

	// Begin opens a business transaction on a connection that the store does not
	// use. Where there is one writer at a time it waits for its turn until ctx
	// ends.
	Begin func(ctx context.Context) (Tx, error)

	// Another opens a second store on the same database, as another process
	// would, and closes it in t's cleanup.
	Another func(t testing.TB) driver.QueueStore

	// Work, if given, runs handlers in place of work.Run: a worker in another language.
	Work func(ctx context.Context, q driver.Queue, h work.Handler, o work.Options) error

	// WorkTx runs handlers in transactions in which their jobs end.
	WorkTx func(ctx context.Context, h TxHandler, o work.Options) error

	// Forwarder opens a store of another process that makes jobs of messages, and Disturb has its transactions fail until calm is called,
	// or its connections break.
	Forwarder func(t testing.TB) driver.Forwarder
	Disturb   func(t testing.TB) (calm func())

	// Pin opens a snapshot that holds back the database's own cleanup until
	// release is called or t ends.
	Pin func(t testing.TB) (release func())

	// HoldExtensions, if given, has transactions that extend leases wait before they commit: from a call of hold until one of open. waits: one
	// does.
	HoldExtensions func(t testing.TB) (waits func() bool, hold func() (open func()))

	// Backdate moves the next time of a periodic job into the past by the given time from now, as if
	// no worker had looked since. If that is negative, it moves it into the future, as if the clock
	// had been so far ahead.
	Backdate func(t testing.TB, queue, schedule string, by time.Duration)

	// Reads is how many entries of indexes, or rows, were read of the store's tables so far, or how many steps that and all else took.
	Reads func(t testing.TB) float64

	// Spoil, if given, writes into a dead letter of the suite's queue, by hand, the attempt 2^31-1 and a history that is none.
	Spoil func(t testing.TB, id int64)
}

// Tx is a business transaction of the store's database at its default
// isolation level. Rollback after Commit returns nil or an error and changes
// nothing.
type Tx interface {
	// Enqueue is the store's own way to enqueue inside a transaction.
	Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// TxReporter is a Tx in which a job of a queue can also be reported on.
type TxReporter interface {
	Reporter(queue string) driver.Reporter
}

// TxHandler does the work of a job in a transaction.
type TxHandler func(ctx context.Context, tx Tx, job penstock.Job) error

// TxSetter is a Tx in which settings can also be changed.
type TxSetter interface {
	SetQueue(ctx context.Context, queue string, set penstock.QueueSettings) error
}

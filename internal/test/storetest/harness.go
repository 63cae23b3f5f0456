package storetest

import (
	"context"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Harness is the contribution of a store's test package to the suite.
type Harness struct {
	// Open makes an empty database on which Migrate has not run and opens a
	// store on it. It is called once per test, from parallel tests too, fails t
	// if it cannot, and leaves nothing behind once t's cleanups have run.
	Open func(t testing.TB) Instance
	// OpenCreated, if a store has it, is Open on a database on which Migrate has run and which has the
	// outbox called Outbox. It serves where that takes long and such a database can be copied. Without
	// it the suite calls Open, Migrate and CreateOutbox.
	OpenCreated func(t testing.TB) Instance
	Features    Features
	// Groups, if given, are the only ones that run: for what has a part of a store.
	Groups []string
	// Only, if given, is for a store that passes the whole suite under other conditions
	// already: what this one can change, see conditions.go. In the long form all cases run.
	Only Cases
	// Elsewhere, if given, has the cases that the store passes under harder conditions already. In the long form all cases run.
	Elsewhere Cases
}

// Outbox is the name that tests use when the name does not matter.
const Outbox = outbox

// openCreated opens a database with the store's tables and an outbox.
func (h Harness) openCreated(t testing.TB) Instance {
	t.Helper()
	if h.OpenCreated != nil {
		return h.OpenCreated(t)
	}
	i := h.Open(t)
	if i.Store == nil {
		return i // newEnv says so
	}
	if err := i.Store.Migrate(t.Context()); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	if err := i.Store.CreateOutbox(t.Context(), outbox); err != nil {
		t.Fatalf("CreateOutbox: %v", err)
	}
	return i
}

// Features are the abilities of the store or its database. The tests of a feature
// that is false are skipped and say so.
type Features struct {
	// ConcurrentWriters: two writing transactions can be open at once. Where false, a second writer
	// waits until the open transaction ends.
	ConcurrentWriters bool
	// Reclaim: OutboxStatus.Bytes falls back to the size of an empty outbox once
	// everything is settled and Maintain has run a few times.
	Reclaim bool
	// SmallPieces: storage is freed in pieces of 256 KiB or less, so that a few
	// megabytes show what Retention.Bytes does.
	SmallPieces bool
	// Snapshots: Instance.Pin is given.
	Snapshots bool
	// Outage: Instance.Outage is given.
	Outage bool
	// Copy: Instance.Copy is given.
	Copy bool
	// Lose: Instance.Lose is given.
	Lose bool
	// Versions: Instance.SetVersion and Spoil are given.
	Versions bool
	// Buffered: a business transaction takes messages and writes them later, so a refusal of the database
	// is an error of Commit.
	Buffered bool
}

// Instance is one database and a store on it.
type Instance struct {
	Store driver.Store

	// Begin opens a business transaction on a connection that the store does
	// not use. Where there is one writer at a time it waits for its turn until
	// ctx ends.
	Begin func(ctx context.Context) (Tx, error)

	// Another opens a second store on the same database, as another process
	// would, and closes it in t's cleanup. Closing it twice, or closing Store
	// before, does no harm.
	Another func(t testing.TB) driver.Store

	// Pin opens a snapshot that holds back the database's own cleanup until release is called or t
	// ends. On PostgreSQL it is a REPEATABLE READ transaction that has read something, on SQLite a
	// read transaction.
	Pin func(t testing.TB) (release func())

	// Outage returns two functions: down cuts every connection of Store and
	// keeps it from connecting again, up lets it. Begin and Another may fail
	// while it is down. t's cleanup calls up.
	Outage func(t testing.TB) (down, up func())

	// Copy makes another database of what this one has committed, as restoring a backup
	// does, and opens a store on it. It may cost Store its connections.
	Copy func(t testing.TB) Instance

	// Lose takes away all messages of the outbox, as on a server that was promoted without the last commits: messages published
	// then get their numbers again. No message has been settled before.
	Lose func(t testing.TB)

	// SetVersion, if given, has the database say that its tables are of that version.
	SetVersion func(t testing.TB, version int64)

	// Spoil, if given, takes away a column that every version has.
	Spoil func(t testing.TB)
}

// Tx is a business transaction of the store's database at its default
// isolation level. Rollback after Commit returns nil or an error and changes
// nothing.
type Tx interface {
	// Publish is the store's own way to publish inside a transaction.
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error

	// Count adds one to the counter called name, a row of a table that belongs
	// to the harness, and returns the new value, 1 at first. The row stays
	// locked until the transaction ends and a rollback takes the change back.
	// It has two uses. Writers of one key take turns by it. And a transaction that begins with a
	// separate counter is a writer, with an id drawn early, before it has published anything.
	Count(ctx context.Context, name string) (int64, error)

	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Package inboxtest is the suite of inboxes, and of growth in a store that is never idle: an inbox, an outbox and a queue of one database.
package inboxtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Instance is one migrated database without inboxes.
type Instance struct {
	Store driver.InboxStore

	// Begin opens a transaction of an application, with an inbox that receives in it.
	Begin func(ctx context.Context, consumer string) (Tx, error)

	// Process and ProcessDue are those of an inbox.
	Process    Process
	ProcessDue func(ctx context.Context, consumer string, h Handler) (int, error)

	// Away returns the Process of an application that reaches its database through a proxy; nil without a connection to lose.
	Away func() (Process, *tcpproxy.Proxy)

	// Age makes what is known by a time a day and an hour older, or has the window pass.
	Age func(t testing.TB)

	// Another opens a second store on the same database, as another process would.
	Another func(t testing.TB) driver.Store

	// Tables are the store's tables, as Count takes them; nil in a store that has another test of their sizes.
	Tables func(t testing.TB) []string

	// Turns: it forgets by turns of a ring, refuses with the database's errors, and Count is not there.
	Turns bool

	// Count counts rows, for example of "received where id like 'a%'".
	Count func(t testing.TB, of string) int

	// Effects are the places that Effect has noted for a key, in the order of the commits.
	Effects func(t testing.TB, key string) []string
}

// Process receives a message in order, in a transaction that the handler works in.
type Process = func(ctx context.Context, consumer string, m penstock.Message, wait time.Duration, h Handler) error

// Handler does the work of a message in a transaction.
type Handler func(ctx context.Context, tx Tx, m penstock.Released) error

// Tx is a transaction with an inbox.
type Tx interface {
	First(ctx context.Context, id string) (bool, error)
	FirstOf(ctx context.Context, ids ...string) ([]string, error)
	InOrder(ctx context.Context, m penstock.Message, wait time.Duration) ([]penstock.Released, error)
	Due(ctx context.Context, n int) ([]penstock.Released, error)

	// Effect writes a row of the application's.
	Effect(ctx context.Context, key, place string) error

	Commit() error
	Rollback() error
}

// Engine lists the cases that another engine of the same database can change: locks, the view of a snapshot, and keys.
var Engine = []string{"Once", "WaitsForAnOpenOne", "PastAFailure", "RandomUse"}

// Run runs the whole suite.
func Run(t *testing.T, open func(t testing.TB) Instance, only ...string) {
	for name, test := range map[string]func(f *fixture){
		"Once": once, "ConsumersApart": consumersApart, "Window": window, "PastAFailure": pastAFailure, "InOrder": inOrder, "Refuses": refuses, "RandomUse": randomUse, "WaitsForAnOpenOne": waits, "Operate": operate,
		"SecondGap": secondGap, "OwnIDs": ownIDs, "PublishOnceForgets": publishOnceForgets, "DiscardedComesAgain": discardedComesAgain, "RandomGaps": randomGaps, "Joined": joined, "RandomOwnIDs": randomOwnIDs, "NeverIdle": neverIdle, "DatabaseAway": databaseAway,
	} {
		if len(only) == 0 || slices.Contains(only, name) || testseed.Long() { // else with PENSTOCK_ROUNDS=1
			run(t, name, open, test)
		}
	}
}

func run(t *testing.T, name string, open func(t testing.TB) Instance, test func(f *fixture)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		f := &fixture{suite.NewEnv(t), open(t)}
		if f.Turns && (name == "Window" || name == "Refuses") {
			t.Skip("it differs")
		}
		if f.Away == nil && name == "DatabaseAway" {
			t.Skip("there is no connection to lose")
		}
		f.OK(f.Store.CreateInbox(t.Context(), consumer, 0))
		test(f)
	})
}

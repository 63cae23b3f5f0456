// Package tablestest is the suite of the stores on plain tables (internal/tables), beyond what every store passes. Connections are lost
// at a named place, and the suite looks into the tables, locks them, and writes into them. Their names and columns are those of all dialects.
//
// It takes a server that has several writers at a time, and whose protocol [wire.Proxy] speaks. store/mysql/tables_suite_test.go runs it. A database
// within the process has storetest, queuetest and inboxtest.
package tablestest

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/wire"
)

// Harness is the contribution of a store's test package to the suite.
type Harness struct {
	// Open makes a migrated database with the outbox orders and the queue jobs.
	Open func(t testing.TB) Instance
	// Trips are the round trips of a call that may be lost. The calls are Publish, Enqueue, Dedup (an Enqueue of jobs with dedup keys), Claim,
	// Ack, AckClaim, Extend, Release, Retry, LastRetry and DeadLetter.
	Trips func(call string) []Trip
	// Faults are those that come by chance.
	Faults []wire.Fault
	// Clock starts a server whose clock the suite sets.
	Clock func(t testing.TB) Clocked
	// Named opens a store with its tables in a schema of this name, which is not there. It is dropped when the test ends.
	Named func(t testing.TB, schema string) Store
	// Only, if given, are the cases that an engine can change, see Engine.
	Only suite.Cases
}

// Engine lists the cases that another engine of the same database can change: locks, and the values of columns.
var Engine = suite.Cases{"Locks/MaintainLooksFirst", "Rows/PlainInserts"}

// Store is one on plain tables.
type Store interface {
	driver.Store
	driver.QueueStore
	driver.GroupStore
	Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error
	Retries() map[string]int64
}

// Instance is one database.
type Instance struct {
	Store  Store // over the proxy
	Direct Store // the same over other connections
	Proxy  *wire.Proxy
	App    *sql.DB // sessions of an application
	// Schema stands for {schema} in the suite's SQL.
	Schema string
	// Key is the column of keys, as SQL.
	Key string
	// Ago is a time that long ago, as SQL.
	Ago func(d time.Duration) string
	// Gate makes the table {schema}.gate, with a row, and has each insert of a lease lock that row first.
	Gate []string
	// Waiting counts the sessions of the database that wait for a lock.
	Waiting string
	// UncheckHeaders drops the check of a table's headers, which tables of an earlier version do not have.
	UncheckHeaders func(t testing.TB, table string)
}

// Trip is a round trip with a text in it.
type Trip struct {
	Text   string
	Under  bool // it is within a transaction that has something locked: what is late arrives while the next attempt, or who looks what became of it, waits
	IfHeld bool // there is none if no lease is held
}

// Run runs the whole suite.
func Run(t *testing.T, h Harness) {
	type testCase = suite.Case[*testing.T, struct{}]
	test := func(name string, run func(f *fixture)) testCase {
		return testCase{Name: name, Run: func(t *testing.T) { run(h.open(t)) }}
	}
	once := []testCase{
		test("AttemptsOfTheDead", attemptsOfTheDead),
		test("WritesByChance", writesByChance),
		test("EndingsByChance", endingsByChance),
		test("WaitsForTheServer", waitsForTheServer),
		test("ImpatientWorkers", impatientWorkers),
		test("LateClaim", lateClaim),
		test("DeadlinesPassed", deadlinesPassed),
	}
	each := func(call string, run func(f *fixture, trip Trip, cut string), cuts ...string) {
		for _, trip := range h.Trips(call) {
			for _, cut := range cuts {
				once = append(once, test(strings.Join([]string{call, firstWord(trip.Text), cut}, "/"), func(f *fixture) { run(f, trip, cut) }))
			}
		}
	}
	each("Publish", publish, "before", "after", "late", "carried off")
	each("Enqueue", func(f *fixture, trip Trip, cut string) { enqueue(f, trip, cut, false) }, "before", "after", "late")
	each("Dedup", func(f *fixture, trip Trip, cut string) { enqueue(f, trip, cut, true) }, "before", "after", "late")
	each("Claim", claim, "before", "after")
	each("Claim", deadlineWithin, "deadline")
	for name, c := range calls {
		each(name, func(f *fixture, trip Trip, cut string) { ending(f, c, trip, cut) }, "before", "after", "late")
	}
	var named []testCase
	for _, schema := range schemas {
		named = append(named, testCase{Name: schema, Run: func(t *testing.T) { h.inSchema(t, schema) }})
	}
	suite.Run(t, suite.Choice{Only: h.Only}, []suite.Group[*testing.T, struct{}]{
		{Name: "Once", Cases: once},
		{Name: "Locks", Cases: []testCase{
			test("PausedWithinATransaction", pausedWithinATransaction),
			test("MaintainLooksFirst", maintainLooksFirst),
			test("CancelledWithinAClaim", cancelledWithinAClaim),
			test("ScheduleOfADroppedQueue", scheduleOfADroppedQueue),
		}},
		{Name: "Schemas", Cases: named},
		{Name: "Clock", Cases: []testCase{{Name: "IsSet", Run: h.setClock}}},
		{Name: "Rows", Cases: []testCase{
			test("PlainInserts", plainInserts),
			test("PlainDeadlines", plainDeadlines),
			test("ScheduleThatIsRefused", scheduleThatIsRefused),
			test("EpochThatComesAgain", func(f *fixture) { epochThatComesAgain(f, f.Direct.Subscribe) }),
			test("SharedEpochThatComesAgain", func(f *fixture) {
				s, ok := f.Direct.(driver.Sharer)
				if !ok {
					f.Skip("the store has no shared subscriptions")
				}
				epochThatComesAgain(f, s.SubscribeShared)
			}),
		}},
	}, func(t *testing.T, _ bool) *testing.T { return t })
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// fixture is one database.
type fixture struct {
	*suite.Env
	Instance
	faults []wire.Fault
	q      driver.Queue // whose connection is lost
}

func newFixture(t *testing.T) *fixture { return &fixture{Env: suite.NewEnv(t)} }

func (h Harness) open(t *testing.T) *fixture {
	f := newFixture(t)
	f.Instance, f.faults = h.Open(t), h.Faults
	f.q = f.Store.DriverQueue("jobs")
	return f
}

func (f *fixture) sql(text string) string { return strings.ReplaceAll(text, "{schema}", f.Schema) }

func (f *fixture) exec(text string, on ...interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}) {
	for _, on := range append(on, f.App)[:1] {
		if _, err := on.ExecContext(f.Context(), f.sql(text)); err != nil {
			f.Fatalf("%s: %v", text, err)
		}
	}
}

// count is a query's one number.
func (f *fixture) count(query string) (n int) {
	f.OK(f.App.QueryRowContext(f.Context(), f.sql(query)).Scan(&n))
	return n
}

func (f *fixture) counts(query string, want int) {
	suite.Equal(f, f.count(query), want, "%s", query)
}

// looked is how often it was looked up what had become of a transaction.
func (f *fixture) looked() int64 { return f.Store.Retries()["unknown"] }

func (f *fixture) lookedOnce() {
	suite.Equal(f, f.looked(), 1, "how often it looked")
}

var cuts = map[string]wire.Fault{"before": wire.CutBefore, "after": wire.CutAfter, "late": wire.CutLate, "carried off": wire.CutAfter}

// lose loses the next round trip of this kind. A late trip, under way in a transaction, continues when one with this text in it
// is asked for.
func (f *fixture) lose(trip Trip, cut, goOnAt string) {
	f.Proxy.Once(cuts[cut], trip.Text, func(next []byte) {
		if cut == "late" && trip.Under && strings.Contains(string(next), goOnAt) {
			f.Proxy.Let()
		}
	})
}

// arrive lets the late bytes arrive.
func (f *fixture) arrive(cut string) {
	if cut == "late" {
		f.Proxy.Arrive()
	}
}

func (f *fixture) subscribe(subscription string) driver.Source {
	src := suite.Get(f.Direct.Subscribe(f.Context(), driver.Subscribe{Outbox: "orders", Subscription: subscription, Holder: "test"})).Must(f, "Subscribe")
	f.Cleanup(func() { _ = src.Close(context.WithoutCancel(f.Context())) })
	return src
}

func (f *fixture) fetch(src driver.Source) driver.Batch {
	b := suite.Get(src.Fetch(f.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})).Must(f, "Fetch")
	return b
}

func (f *fixture) publish(payload string) {
	f.OK(f.Direct.Publish(f.Context(), "orders", penstock.Message{Key: "k", Payload: []byte(payload)}))
}

// Package adopttest is the suite of readers of adopted tables, for any dialect of SQL.
package adopttest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Instance is one migrated database with the tables that another application made.
type Instance struct {
	// Open prepares a subscription.
	Open func(subscription string, c adopted.Config) (descriptor.Adopted, error)
	// Begin opens a transaction of an application.
	Begin func(ctx context.Context) (Tx, error)
	// Define runs the dialect's own statement of a name; the suite defines its effect.
	Define func(t testing.TB, name string)
	// Adoptions are the subscriptions that are remembered.
	Adoptions func(ctx context.Context) ([]descriptor.Remembered, error)
	// IDsGrow: a later draw of a table's number gives a higher one, in any session.
	IDsGrow bool
	// Differs are cases of the suite in which this reader behaves differently, as docs/reference/engines.md says; it has its own
	// tests of them.
	Differs []string
	// Ago is the time that long ago, as SQL.
	Ago func(d time.Duration) string
}

// Tx is a transaction. Every database understands the statements that it executes.
type Tx interface {
	Exec(ctx context.Context, sql string) error
	Number(ctx context.Context, sql string) (int, error)
	Commit() error
	Rollback() error
}

// The tables that Define makes.
const (
	// Shop has all columns: id, a number, which the database gives; part, kind ('t'), body, extra (JSON), state ('pending'). Then
	// done_at, failure (40 characters), tries (0), and at (the time of the insert), with an index.
	Shop = "shop"
	// Letters is letters(ts, id, message), a time and a number, which the database gives, with the key (ts, id).
	Letters = "letters"
	// Marked is marked(id, at, body, done_at): a uuid and a time that are given, and an index on at, of waiting rows, on a database with partial indexes.
	Marked = "marked"
	// Long is long_ids(id, at, body): an id may have more than 700 characters.
	Long = "long_ids"
	// Bare is bare(id, at, body): at may be NULL and has no index.
	Bare = "bare"
	// Coded is coded(id, at, body, sent): char(26), in MySQL's dialect in latin1, which is given, the time of the insert, with an index, and a boolean (false).
	Coded = "coded"
	// Counters is counters(name, n).
	Counters = "counters"
)

func shop() adopted.Config {
	return adopted.Config{Table: "shop", Columns: adopted.Columns{ID: "id", Order: []string{"id"}, Key: "part", Topic: "kind", Payload: "body", Headers: "extra",
		ProcessedAt: "done_at", Error: "failure", Attempts: "tries"}}
}

func letters() adopted.Config {
	return adopted.Config{Table: "letters", Columns: adopted.Columns{ID: "id", Order: []string{"ts"}, Payload: "message"}, Delivered: adopted.Delete}
}

func marked() adopted.Config {
	return adopted.Config{Table: "marked", Columns: adopted.Columns{ID: "id", Order: []string{"at"}, Payload: "body", ProcessedAt: "done_at"}}
}

// Engine lists the cases that another engine of the same database can change: locks, the view of a snapshot, keys, and their order.
var Engine = []string{"RolledBack", "Late", "FarAhead", "EachOnce", "Ties", "LowWaterMark", "ParkedInOrder", "Shares", "RandomUse"}

// Run runs the whole suite.
func Run(t *testing.T, open func(t testing.TB) Instance, only ...string) {
	for name, test := range map[string]func(f *fixture){
		"Content": content, "RolledBack": rolledBack, "Late": late, "FarAhead": farAhead, "EachOnce": eachOnce, "Ties": ties, "Marked": markedRows, "Coded": coded, "Ways": ways, "Next": next,
		"LowWaterMark": lowWaterMark, "ParkedInOrder": parkedInOrder, "ParkedSurvives": parkedSurvives, "DeadLetters": deadLetters, "TakenAway": takenAway, "Unfit": unfit,
		"Refuses": refuses, "Shares": shares, "Drop": drop, "RandomUse": randomUse,
	} {
		if len(only) > 0 && !slices.Contains(only, name) && !testseed.Long() {
			continue // in the long form
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fixture{suite.NewEnv(t), open(t)}
			if slices.Contains(f.Differs, name) {
				t.Skip("it differs")
			}
			test(f)
		})
	}
}

// fixture is a database.
type fixture struct {
	*suite.Env
	Instance
}

// open prepares a subscription that fits.
func (f *fixture) open(c adopted.Config) descriptor.Adopted {
	table := suite.Get(f.Open("sub", c)).Must(f, "Open")
	f.Cleanup(func() { _ = table.Close() })
	return table
}

func (f *fixture) subscribe(t descriptor.Adopted) driver.Source {
	src := suite.Get(t.Subscribe(f.Context(), driver.Subscribe{Holder: "test"})).Must(f, "Subscribe")
	f.Cleanup(func() { _ = src.Close(context.Background()) })
	return src
}

// exec runs statements, each in a separate transaction.
func (f *fixture) exec(statements ...string) {
	for _, s := range statements {
		tx := suite.Get(f.Begin(f.Context())).Must(f, "Begin")
		if err := tx.Exec(f.Context(), s); err != nil {
			f.Fatalf("%s: %v", s, err)
		}
		f.OK(tx.Commit())
	}
}

func (f *fixture) number(sql string) int {
	tx := suite.Get(f.Begin(f.Context())).Must(f, "Begin")
	defer func() { _ = tx.Rollback() }()
	n, err := tx.Number(f.Context(), sql)
	if err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	return n
}

// fetch returns the next batch that is not empty.
func (f *fixture) fetch(src driver.Source) (b driver.Batch) {
	return f.fetchUpTo(src, 1000)
}

func (f *fixture) fetchUpTo(src driver.Source, n int) (b driver.Batch) {
	f.Eventually("a batch is fetched", func() bool {
		b = suite.Get(src.Fetch(f.Context(), driver.Limit{Messages: n, Bytes: 16 << 20})).Must(f, "Fetch")
		return len(b.Messages) > 0
	})
	return b
}

func (f *fixture) settle(src driver.Source, b driver.Batch, verdicts ...driver.Verdict) {
	f.OK(storetest.Settle(f.Context(), src, driver.Settled{Batch: b, Verdicts: verdicts}))
}

func payloads(b driver.Batch) (all []string) {
	for _, m := range b.Messages {
		all = append(all, string(m.Payload))
	}
	return all
}

// rows compares the number of rows of a table, as in "shop where done_at is null".
func (f *fixture) rows(want int, of string) {
	suite.Equal(f, f.number("select count(*) from "+of), want, "rows of %s", of)
}

func (f *fixture) want(b driver.Batch, want ...string) {
	suite.MustEqual(f, payloads(b), want, "payloads")
}

// misfit is the field of the error, which has the next step.
func (f *fixture) misfit(err error, field string) {
	var e *penstock.FieldError
	if !errors.As(err, &e) || e.Field != field || e.Hint == "" {
		f.Errorf("the error is %v, want one about %s", err, field)
	}
}

func failed(attempt int) []penstock.Failure {
	return []penstock.Failure{{Attempt: attempt, At: time.Now().UTC(), Err: "refused, and this is a long story of why it was"}}
}

func parked(attempt int, in time.Duration) driver.Verdict {
	return driver.Verdict{Outcome: driver.Parked, Failures: failed(attempt), RetryIn: in}
}

var (
	ok     = driver.Verdict{}
	behind = driver.Verdict{Outcome: driver.Parked}
)

package penstocktest_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of database/sql

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/penstocktest"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Run(m)) }

// failure is a test whose Fatal is caught.
type failure struct {
	testing.TB
	said string
}

func (f *failure) Helper() {}

func (f *failure) Fatal(args ...any) {
	f.said = fmt.Sprint(args...)
	panic(f)
}

func (f *failure) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// failing returns the text with which a test fails.
func failing(t *testing.T, run func(t testing.TB)) string {
	f := &failure{TB: t}
	func() {
		defer func() { _ = recover() }()
		run(f)
	}()
	return f.said
}

func TestRunOne(t *testing.T) {
	store := sqlitetest.New(t)
	must(t, store.CreateQueue(t.Context(), "mails", penstock.FIFO))
	q := store.DriverQueue("mails")
	_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("a")}, penstock.NewJob{Payload: []byte("b")}, penstock.NewJob{Payload: []byte("c")})
	must(t, err)
	for _, c := range []struct {
		payload string
		err     error
		how     work.End
	}{{"a", nil, work.Done}, {"b", work.Snooze(time.Hour), work.Snoozed}, {"c", penstock.Permanent(errors.New("no good")), work.Dead}} {
		calls := 0
		job, how := penstocktest.RunOne(t, q, func(_ context.Context, j penstock.Job) error { calls++; return c.err })
		if string(job.Payload) != c.payload || how != c.how || calls != 1 {
			t.Errorf("ran %q, which is %s, with %d calls, want %q, %s, 1", job.Payload, how, calls, c.payload, c.how)
		}
	}
	if said := failing(t, func(t testing.TB) {
		penstocktest.RunOne(t, q, func(context.Context, penstock.Job) error { return nil })
	}); said != "the queue has no job to run now: one is enqueued by the commit of its transaction, and on PostgreSQL, Advance moves its clock to a delayed one" {
		t.Errorf("without a job it said %q", said)
	}
}

// Jobs of groups run as well, after those without a group.
func TestRunOneOfAGroup(t *testing.T) {
	inPostgres, _, _ := all[0].store(t)
	for name, store := range map[string]driver.QueueStore{"SQLite": sqlitetest.New(t), "PostgreSQL": inPostgres} {
		must(t, store.CreateQueue(t.Context(), "mails", penstock.FIFO))
		q := store.DriverQueue("mails")
		_, err := q.Enqueue(t.Context(), penstock.NewJob{Group: "b", Kind: "welcome"}, penstock.NewJob{Group: "a", Kind: "invoice"}, penstock.NewJob{Kind: "invoice"})
		must(t, err)
		done := func(context.Context, penstock.Job) error { return nil }
		for _, c := range []struct{ kind, group string }{{"welcome", "b"}, {"", ""}, {"", "a"}} {
			var kind []string
			if c.kind != "" {
				kind = []string{c.kind}
			}
			if job, how := penstocktest.RunOne(t, q, done, kind...); job.Group != c.group || how != work.Done {
				t.Errorf("%s: ran a job of the group %q, which is %s, want one of %q", name, job.Group, how, c.group)
			}
		}
	}
}

func TestRunOneOfAKind(t *testing.T) {
	store := sqlitetest.New(t)
	must(t, store.CreateQueue(t.Context(), "mails", penstock.FIFO))
	q := store.DriverQueue("mails")
	for _, kind := range []string{"welcome", "invoice", "welcome", ""} {
		_, err := q.Enqueue(t.Context(), penstock.NewJob{Kind: kind})
		must(t, err)
	}
	done := func(context.Context, penstock.Job) error { return nil }
	for _, kind := range []string{"invoice", "", "welcome", "welcome"} {
		if job, how := penstocktest.RunOne(t, q, done, kind); job.Kind() != kind || job.Attempt != 1 || how != work.Done {
			t.Errorf("ran attempt %d of kind %q, which is %s, want %q", job.Attempt, job.Kind(), how, kind)
		}
	}
	_, err := q.Enqueue(t.Context(), penstock.NewJob{Kind: "welcome"})
	must(t, err)
	if said := failing(t, func(t testing.TB) { penstocktest.RunOne(t, q, done, "invoice") }); !strings.Contains(said, `no job of kind "invoice" to run now`) {
		t.Errorf("without a job of the kind it said %q", said)
	}
}

// A handler of RunOne has what one of work.Run has: reports, steps, and holds of its group. Its error is logged.
func TestRunOneHasAllThatHandlersUse(t *testing.T) {
	sqlite := sqlitetest.New(t)
	inPostgres, _, _ := all[0].store(t)
	for name, store := range map[string]interface {
		driver.QueueStore
		driver.GroupStore
	}{"SQLite": sqlite, "PostgreSQL": inPostgres} {
		must(t, store.CreateQueue(t.Context(), "emails", penstock.FIFO))
		q := store.DriverQueue("emails")
		_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("a")})
		must(t, err)
		log := &logged{TB: t}
		_, how := penstocktest.RunOne(log, q, func(ctx context.Context, _ penstock.Job) error {
			if _, err := work.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return err
			}
			return penstock.RetryAfter(errors.New("the printer is out"), 0)
		})
		if how != work.Failed || !strings.Contains(log.String(), "the printer is out") {
			t.Fatalf("%s: the first attempt is %s with the log %q, want failed, and the error", name, how, log)
		}
		job, how := penstocktest.RunOne(t, q, func(ctx context.Context, _ penstock.Job) error {
			_, err := work.Step(ctx, "charge", func(context.Context) (int, error) { return 0, errors.New("ran again") })
			return errors.Join(err, work.Report(ctx, map[string]int{"percent": 50}))
		})
		if how != work.Done || job.Attempt != 2 {
			t.Errorf("%s: attempt %d is %s, want 2, done", name, job.Attempt, how)
		}
		_, err = q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("b")})
		must(t, err)
		penstocktest.RunOne(t, q, func(context.Context, penstock.Job) error { return work.HoldGroup(time.Hour, "429") })
		held, err := store.GroupPolicies(t.Context(), "emails", "", 10)
		must(t, err)
		if len(held) != 1 || held[0].Reason != "429" {
			t.Errorf("%s: held are %+v, want the group", name, held)
		}
	}
}

// logged is a test whose log is kept.
type logged struct {
	testing.TB
	bytes.Buffer
}

func (l *logged) Output() io.Writer { return &l.Buffer }

// of is a helper by pgx or by database/sql, in the schema that is usual or in another.
type of struct {
	name   string
	schema []string
	sql    bool
}

var all = []of{{"pgx", nil, false}, {"sql", nil, true}, {"pgx, another schema", []string{`100% "odd"`}, false}, {"sql, another schema", []string{`100% "odd"`}, true}}

// store opens a new database, with a connection of each library.
func (o of) store(t *testing.T) (*postgres.Store, *pgx.Conn, *sql.DB) {
	t.Helper()
	url := postgrestest.Database(t)
	store, err := postgres.Open(t.Context(), url, postgres.Options{Schema: strings.Join(o.schema, "")})
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	must(t, store.Migrate(t.Context()))
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return store, postgrestest.On(t, url).Connect(), db
}

func TestRequirePublished(t *testing.T) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			store, conn, db := c.store(t)
			must(t, store.CreateOutbox(t.Context(), "orders"))
			tx, err := conn.Begin(t.Context())
			must(t, err)
			sqlTx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			for _, p := range []string{"old", "new"} {
				m := penstock.Message{ID: p, Key: "ann", Topic: "placed", Payload: []byte(p), Headers: map[string]string{"h": p}}
				if c.sql {
					must(t, store.Outbox("orders").PublishSQL(t.Context(), sqlTx, m))
				} else {
					must(t, store.Outbox("orders").PublishTx(t.Context(), tx, m))
				}
			}
			require := func(t testing.TB, key string) penstock.Message {
				if c.sql {
					return penstocktest.RequirePublishedSQL(t, sqlTx, "orders", "placed", key, c.schema...)
				}
				return penstocktest.RequirePublished(t, tx, "orders", "placed", key, c.schema...)
			}
			if m := require(t, "ann"); m.ID != "new" || m.Key != "ann" || m.Topic != "placed" || string(m.Payload) != "new" || m.Headers["h"] != "new" {
				t.Errorf("got %+v, want the latest", m)
			}
			want := `the outbox "orders" has no message with the topic "placed" and the key "bob"; it has these topics and keys: "placed" "ann", "placed" "ann"`
			if said := failing(t, func(t testing.TB) { require(t, "bob") }); said != want {
				t.Errorf("without a message it said %q, want %q", said, want)
			}
			not := func(t testing.TB, key string) {
				if c.sql {
					penstocktest.RequireNotPublishedSQL(t, sqlTx, "orders", "placed", key, c.schema...)
				} else {
					penstocktest.RequireNotPublished(t, tx, "orders", "placed", key, c.schema...)
				}
			}
			not(t, "bob")
			want = `the outbox "orders" has a message with the topic "placed" and the key "ann": "new"`
			if said := failing(t, func(t testing.TB) { not(t, "ann") }); said != want {
				t.Errorf("of a message it said %q, want %q", said, want)
			}
			must(t, tx.Rollback(t.Context()))
			must(t, sqlTx.Rollback())
			penstocktest.RequireNotPublished(t, conn, "orders", "placed", "ann", c.schema...)
			if said := failing(t, func(t testing.TB) { penstocktest.RequirePublished(t, conn, "orders", "placed", "ann", c.schema...) }); said == "" {
				t.Error("what was rolled back is found")
			}
		})
	}
}

func TestRequireEnqueued(t *testing.T) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			store, conn, db := c.store(t)
			must(t, store.CreateQueue(t.Context(), "mails", penstock.FIFO))
			q := store.Queue("mails")
			tx, err := conn.Begin(t.Context())
			must(t, err)
			sqlTx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			later := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
			jobs := []penstock.NewJob{
				{Kind: "welcome", Key: "ann", Payload: []byte("old")},
				{Kind: "welcome", Key: "ann", Group: "g", Priority: 3, Timeout: time.Minute, Payload: []byte("new"), Headers: map[string]string{"h": "1"}},
				{Kind: "remind", NotBefore: later, Payload: []byte("later")},
				{Payload: []byte("plain")},
			}
			if c.sql {
				_, err = q.EnqueueSQL(t.Context(), sqlTx, jobs...)
			} else {
				_, err = q.EnqueueTx(t.Context(), tx, jobs...)
			}
			must(t, err)
			require := func(t testing.TB, kind, key string) penstock.NewJob {
				if c.sql {
					return penstocktest.RequireEnqueuedSQL(t, sqlTx, "mails", kind, key, c.schema...)
				}
				return penstocktest.RequireEnqueued(t, tx, "mails", kind, key, c.schema...)
			}
			for _, want := range jobs[1:] {
				want.Headers = want.AllHeaders()
				if got := require(t, want.Kind, want.Key); !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
			said := failing(t, func(t testing.TB) { require(t, "welcome", "bob") })
			if !strings.Contains(said, `no job of the kind "welcome" with the key "bob"; it has these kinds and keys: `) || !strings.Contains(said, `"welcome" "ann"`) || !strings.Contains(said, `"remind" ""`) {
				t.Errorf("without a job it said %q", said)
			}
			must(t, tx.Rollback(t.Context()))
			must(t, sqlTx.Rollback())
			if said := failing(t, func(t testing.TB) { penstocktest.RequireEnqueued(t, conn, "mails", "welcome", "ann", c.schema...) }); !strings.Contains(said, "keys: none") {
				t.Errorf("of what was rolled back it said %q", said)
			}
		})
	}
}

func TestAdvance(t *testing.T) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			store, conn, db := c.store(t)
			must(t, store.CreateQueue(t.Context(), "mails", penstock.FIFO))
			q := store.Queue("mails")
			_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("later"), NotBefore: time.Now().Add(time.Hour)}, penstock.NewJob{Payload: []byte("leased")})
			must(t, err)
			if jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 9, Lease: 30 * time.Minute}); err != nil || len(jobs) != 1 {
				t.Fatalf("claimed %v, %v, want the one that is not delayed", jobs, err)
			}
			advance := func(t testing.TB, queue string, by time.Duration) {
				if c.sql {
					penstocktest.AdvanceSQL(t, db, queue, by, c.schema...)
				} else {
					penstocktest.Advance(t, conn, queue, by, c.schema...)
				}
			}
			for _, step := range []struct {
				by   time.Duration
				want string
			}{{29 * time.Minute, ""}, {2 * time.Minute, "leased"}, {28 * time.Minute, ""}, {2 * time.Minute, "later"}} {
				advance(t, "mails", step.by)
				jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 9, Lease: 10 * time.Hour})
				must(t, err)
				got := ""
				for _, j := range jobs {
					got += string(j.Payload)
				}
				if got != step.want {
					t.Errorf("after %s more the jobs are %q, want %q", step.by, got, step.want)
				}
			}
			if said := failing(t, func(t testing.TB) { advance(t, "nothing", time.Hour) }); !strings.Contains(said, "there is no queue") {
				t.Errorf("a queue that is not there: %q", said)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package penstocktest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	}); said != "the queue has no job to run now" {
		t.Errorf("without a job it said %q", said)
	}
}

func TestRequirePublished(t *testing.T) {
	url := postgrestest.Database(t)
	store, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	defer func() { _ = store.Close() }()
	must(t, store.CreateOutbox(t.Context(), "orders"))
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	for _, p := range []string{"old", "new"} {
		must(t, store.Outbox("orders").PublishTx(t.Context(), tx, penstock.Message{Key: "ann", Topic: "placed", Payload: []byte(p), Headers: map[string]string{"h": p}}))
	}
	if m := penstocktest.RequirePublished(t, tx, "orders", "placed", "ann"); string(m.Payload) != "new" || m.Headers["h"] != "new" {
		t.Errorf("got %+v, want the latest", m)
	}
	want := `the outbox "orders" has no message with the topic "placed" and the key "bob"`
	if said := failing(t, func(t testing.TB) { penstocktest.RequirePublished(t, tx, "orders", "placed", "bob") }); said != want {
		t.Errorf("without a message it said %q, want %q", said, want)
	}
	must(t, tx.Rollback(t.Context()))
	if said := failing(t, func(t testing.TB) { penstocktest.RequirePublished(t, conn, "orders", "placed", "ann") }); said == "" {
		t.Error("what was rolled back is found")
	}
}

func TestAdvance(t *testing.T) {
	url := postgrestest.Database(t)
	store, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	defer func() { _ = store.Close() }()
	must(t, store.CreateQueue(t.Context(), "mails", penstock.FIFO))
	q := store.Queue("mails")
	_, err = q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("later"), NotBefore: time.Now().Add(time.Hour)}, penstock.NewJob{Payload: []byte("leased")})
	must(t, err)
	if jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 9, Lease: 30 * time.Minute}); err != nil || len(jobs) != 1 {
		t.Fatalf("claimed %v, %v, want the one that is not delayed", jobs, err)
	}
	conn := postgrestest.On(t, url).Connect()
	for _, c := range []struct {
		by   time.Duration
		want string
	}{{29 * time.Minute, ""}, {2 * time.Minute, "leased"}, {28 * time.Minute, ""}, {2 * time.Minute, "later"}} {
		penstocktest.Advance(t, conn, "mails", c.by)
		jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 9, Lease: 10 * time.Hour})
		must(t, err)
		got := ""
		for _, j := range jobs {
			got += string(j.Payload)
		}
		if got != c.want {
			t.Errorf("after %s more the jobs are %q, want %q", c.by, got, c.want)
		}
	}
	if said := failing(t, func(t testing.TB) { penstocktest.Advance(t, conn, "nothing", time.Hour) }); !strings.Contains(said, "there is no queue") {
		t.Errorf("a queue that is not there: %q", said)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

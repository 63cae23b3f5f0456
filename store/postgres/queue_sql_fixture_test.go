package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// leased is a job as a worker gets it from claim.
type leased struct {
	id, lease int64
	key       string
	attempt   int
}

// jobs is a database with the queue "q", used in SQL.
func newJobs(t testing.TB, ordering string) *fixture {
	f := holding(t, "q "+ordering, postgres.Options{}, postgres.Options{Segments: 4, SegmentBytes: 65536}, func(ctx context.Context, s *postgres.Store) error {
		return s.CreateQueue(ctx, "q", penstock.QueueOrder(ordering))
	})
	f.Exec("select penstock.keep_samples('0')") // a sample reads, once a minute: time would decide about tests that count
	return f
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// modelSteps is how many a walk of jobModel has: its long form is longer, and more often.
func modelSteps() int {
	if testseed.Long() {
		return 250
	}
	return 100
}

func (f *fixture) claimOn(on querier, n int, group string) []leased {
	f.Helper()
	rows, err := on.Query(f.Ctx, "select id, lease, coalesce(key, ''), attempt from penstock.claim('q', $1, '1 h', $2, 'w')", n, group)
	f.Must(err)
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leased, err error) {
		err = row.Scan(&l.id, &l.lease, &l.key, &l.attempt)
		return l, err
	})
	f.Must(err)
	return jobs
}

func (f *fixture) claim(n int) []leased {
	f.Helper()
	return f.claimOn(f.Conn, n, "")
}

func (f *fixture) wantClaim(n int, ids ...int64) []leased {
	f.Helper()
	jobs := f.claim(n)
	got := make([]int64, len(jobs))
	for i, j := range jobs {
		got[i] = j.id
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		f.Fatalf("claimed %v, want %v", got, ids)
	}
	return jobs
}

// maintain does all maintenance, however recent the last was.
func (f *fixture) maintain() {
	f.Helper()
	f.Exec(`select setval('penstock."_q.maintained"', 0)`)
	f.Exec("select penstock.maintain_queue('q')")
}

// expire ends all leases.
func (f *fixture) expire() {
	f.Helper()
	f.Exec("update penstock._lease set lease_until = now() - interval '1 s'")
	f.maintain()
}

// ripen makes due what waits for no more than two days.
func (f *fixture) ripen() {
	f.Helper()
	f.Exec("update penstock._scheduled set due = now() where due < now() + interval '2 days'")
	f.maintain()
}

func (f *fixture) text(sql string, args ...any) (s string) {
	f.Helper()
	if err := f.Conn.QueryRow(f.Ctx, sql, args...).Scan(&s); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	return s
}

func (f *fixture) wantText(want, sql string, args ...any) {
	f.Helper()
	if got := f.text(sql, args...); got != want {
		f.Fatalf("%s: got %q, want %q", sql, got, want)
	}
}

// wantError runs what must fail with an SQLSTATE and a hint.
func (f *fixture) wantError(code, sql string, args ...any) {
	f.Helper()
	_, err := f.Conn.Exec(f.Ctx, sql, args...)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code || pg.Hint == "" {
		f.Errorf("%.80s: got %+v, want %s and a hint", sql, err, code)
	}
}

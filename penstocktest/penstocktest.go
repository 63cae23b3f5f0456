// Package penstocktest has helpers to test programs that publish messages and work on queues.
package penstocktest

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// Querier has the method that these helpers need: it is a pgx.Tx, *pgx.Conn or *pgxpool.Pool.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// SQLQuerier is one for database/sql, with any PostgreSQL driver: a *sql.Tx, *sql.Conn or *sql.DB.
type SQLQuerier interface {
	QueryContext(ctx context.Context, sql string, args ...any) (*sql.Rows, error)
}

// RequirePublished returns the latest message of a topic and a key ("" for none) in an outbox of PostgreSQL, in the schema
// penstock or in the one that is given. It reads in tx, so it also sees messages that tx has published. It fails the test if there is
// none, and lists others. It needs the rights of the outbox's owner.
func RequirePublished(t testing.TB, tx Querier, outbox, topic, key string, schema ...string) penstock.Message {
	t.Helper()
	return requirePublished(t, ofPgx(tx), outbox, topic, key, schema)
}

// RequirePublishedSQL is RequirePublished for database/sql.
func RequirePublishedSQL(t testing.TB, tx SQLQuerier, outbox, topic, key string, schema ...string) penstock.Message {
	t.Helper()
	return requirePublished(t, ofSQL(tx), outbox, topic, key, schema)
}

// RequireNotPublished fails the test if an outbox of PostgreSQL has a message of a topic and a key ("" for none). The outbox is in the
// schema penstock or in the one that is given. It reads in tx. Messages that were committed before count too. It needs the rights of the outbox's owner.
func RequireNotPublished(t testing.TB, tx Querier, outbox, topic, key string, schema ...string) {
	t.Helper()
	requireNotPublished(t, ofPgx(tx), outbox, topic, key, schema)
}

// RequireNotPublishedSQL is RequireNotPublished for database/sql.
func RequireNotPublishedSQL(t testing.TB, tx SQLQuerier, outbox, topic, key string, schema ...string) {
	t.Helper()
	requireNotPublished(t, ofSQL(tx), outbox, topic, key, schema)
}

func requireNotPublished(t testing.TB, query query, outbox, topic, key string, schema []string) {
	t.Helper()
	if m, found, _ := published(t, query, outbox, topic, key, schema); found {
		t.Fatalf("the outbox %q has a message with the topic %q and the key %q: %.200q", outbox, topic, key, m.Payload)
	}
}

func requirePublished(t testing.TB, query query, outbox, topic, key string, schema []string) penstock.Message {
	t.Helper()
	m, found, others := published(t, query, outbox, topic, key, schema)
	if !found {
		t.Fatalf("the outbox %q has no message with the topic %q and the key %q; it has these topics and keys: %s", outbox, topic, key, cmp.Or(strings.Join(others[:min(len(others), 10)], ", "), "none"))
	}
	return m
}

// published is the latest message of a topic and a key, and the topics and keys of some others.
func published(t testing.TB, query query, outbox, topic, key string, schema []string) (m penstock.Message, found bool, others []string) {
	t.Helper()
	err := query(t.Context(), func(scan func(...any) error) error {
		var other penstock.Message
		var headers string
		if err := scan(&other.ID, &other.Key, &other.Topic, &headers, &other.Payload); err != nil {
			return err
		}
		if !found && other.Topic == topic && other.Key == key {
			found, m = true, other
			return json.Unmarshal([]byte(headers), &m.Headers)
		}
		others = append(others, fmt.Sprintf("%q %q", other.Topic, other.Key))
		return nil
	}, "select coalesce(id, ''), coalesce(key, ''), topic, coalesce(headers::text, 'null'), payload from "+in(schema, outbox)+
		" order by topic = $1 and coalesce(key, '') = $2 desc, seq desc limit 11", topic, key)
	if err != nil {
		t.Fatalf("reading the outbox %q: %v", outbox, err)
	}
	return m, found, others
}

// RequireEnqueued returns the latest job of a kind and a key ("" for none) that waits or is delayed in a queue of PostgreSQL. The queue is in
// the schema penstock or in the one that is given. It reads in tx, so it also sees jobs that tx has enqueued. It fails the test if there is none, and
// lists the others. Jobs that are claimed are left out. Headers also has those that carry other fields. It needs the rights of the queue's owner.
func RequireEnqueued(t testing.TB, tx Querier, queue, kind, key string, schema ...string) penstock.NewJob {
	t.Helper()
	return requireEnqueued(t, ofPgx(tx), queue, kind, key, schema)
}

// RequireEnqueuedSQL is RequireEnqueued for database/sql.
func RequireEnqueuedSQL(t testing.TB, tx SQLQuerier, queue, kind, key string, schema ...string) penstock.NewJob {
	t.Helper()
	return requireEnqueued(t, ofSQL(tx), queue, kind, key, schema)
}

func requireEnqueued(t testing.TB, query query, queue, kind, key string, schema []string) (job penstock.NewJob) {
	t.Helper()
	found, others := false, []string(nil)
	err := query(t.Context(), func(scan func(...any) error) error {
		var j penstock.NewJob
		var headers string
		var due int64 // in µs
		if err := scan(&j.Key, &j.Group, &j.Priority, &due, &headers, &j.Payload); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(headers), &j.Headers); err != nil {
			return err
		}
		j.ReadHeaders()
		if due != 0 {
			j.NotBefore = time.UnixMicro(due).UTC()
		}
		if !found && j.Kind == kind && j.Key == key {
			found, job = true, j
		}
		others = append(others, fmt.Sprintf("%q %q", j.Kind, j.Key))
		return nil
	}, "select coalesce(key, ''), group_key, priority, due, coalesce(headers::text, 'null'), payload from ("+
		"select coalesce(id, seq) as id, key, group_key, priority, 0 as due, headers, payload from "+in(schema, queue)+
		" union all select id, key, group_key, priority, coalesce((extract(epoch from case when isfinite(due) then due end) * 1000000)::bigint, 0), headers, payload"+
		" from "+in(schema, "_scheduled")+" where queue = (select id from "+in(schema, "_queue")+" where name = $1)) j order by id desc limit 1000", queue)
	if err != nil {
		t.Fatalf("reading the queue %q: %v", queue, err)
	}
	if !found {
		t.Fatalf("the queue %q has no job of the kind %q with the key %q; it has these kinds and keys: %s", queue, kind, key, cmp.Or(strings.Join(others[:min(len(others), 10)], ", "), "none"))
	}
	return job
}

// Advance moves the clock of a queue of PostgreSQL forward by the given time, in the schema penstock or in the one that is given. Jobs
// that are delayed, snoozed or retried until then become due, leases that end until then have ended, and schedules run. In a
// transaction it makes others wait until that ends. It needs the rights of the schema's owner.
func Advance(t testing.TB, db Querier, queue string, by time.Duration, schema ...string) {
	t.Helper()
	advance(t, ofPgx(db), queue, by, schema)
}

// AdvanceSQL is Advance for database/sql.
func AdvanceSQL(t testing.TB, db SQLQuerier, queue string, by time.Duration, schema ...string) {
	t.Helper()
	advance(t, ofSQL(db), queue, by, schema)
}

func advance(t testing.TB, query query, queue string, by time.Duration, schema []string) {
	t.Helper()
	err := query(t.Context(), func(func(...any) error) error { return nil }, "select "+in(schema, "advance_queue")+"($1, $2::float8 * interval '1 second')", queue, by.Seconds())
	if err != nil {
		t.Fatalf("advancing the queue %q: %v", queue, err)
	}
}

// in is the name of an object of a schema.
func in(schema []string, name string) string {
	of := postgres.DefaultSchema
	if len(schema) > 0 {
		of = schema[0]
	}
	return pgx.Identifier{of, name}.Sanitize()
}

// query runs a statement, and calls each for each row.
type query func(ctx context.Context, each func(scan func(...any) error) error, sql string, args ...any) error

func ofPgx(on Querier) query {
	return func(ctx context.Context, each func(scan func(...any) error) error, sql string, args ...any) error {
		rows, err := on.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

func ofSQL(on SQLQuerier) query {
	return func(ctx context.Context, each func(scan func(...any) error) error, sql string, args ...any) error {
		rows, err := on.QueryContext(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			if err := each(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// RunOne claims the next job of a queue, runs h on it as work.Run does, and returns how that ended. It takes a job without a group, or else
// one of the first group that has one. It fails the test if no job can run now: one that an open transaction has enqueued cannot. The error
// of a handler is in the test's log. With a kind it is the next job of that kind, "" for one without: jobs before it stay, behind the others
// of the queue.
func RunOne(t testing.TB, q driver.Queue, h work.Handler, kind ...string) (job penstock.Job, how work.End) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one := &oneJob{Queue: q, cancel: cancel, kinds: kind}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := work.Run(ctx, one.withExtras(), h, work.Options{Concurrency: 1, Observer: one, Logger: log}); err != nil {
		t.Fatalf("running a job: %v", err)
	}
	if one.how == "" && len(kind) > 0 {
		t.Fatalf("the queue has no job of kind %q to run now: one is enqueued by the commit of its transaction, and on PostgreSQL, Advance moves its clock to a delayed one", kind[0])
	}
	if one.how == "" {
		t.Fatal("the queue has no job to run now: one is enqueued by the commit of its transaction, and on PostgreSQL, Advance moves its clock to a delayed one")
	}
	return one.job, one.how
}

// maxGroups is how many groups are searched for a job.
const maxGroups = 1000

// oneJob is a queue that allows one claim, and the observer of how the job ends.
type oneJob struct {
	driver.Queue
	cancel  context.CancelFunc
	kinds   []string // one, or none for any
	claimed bool
	job     penstock.Job
	how     work.End
}

// withExtras is the queue with those of its methods that handlers need and not each queue has.
func (o *oneJob) withExtras() work.Queue {
	reporter, reports := o.Queue.(driver.Reporter)
	holder, holds := o.Queue.(driver.GroupHolder)
	switch {
	case reports && holds:
		return struct {
			*oneJob
			driver.Reporter
			driver.GroupHolder
		}{o, reporter, holder}
	case reports:
		return struct {
			*oneJob
			driver.Reporter
		}{o, reporter}
	case holds:
		return struct {
			*oneJob
			driver.GroupHolder
		}{o, holder}
	}
	return o
}

func (o *oneJob) Claim(ctx context.Context, c driver.Claim) (jobs []penstock.Job, err error) {
	if o.claimed {
		return nil, nil
	}
	c.Jobs = 1
	if len(o.kinds) > 0 {
		c.Jobs = driver.MaxClaim
	}
	groups := []string{c.Group}
	for i := 0; i < len(groups) && len(jobs) == 0 && err == nil; i++ {
		c.Group = groups[i]
		if jobs, err = o.Queue.Claim(ctx, c); err == nil && len(o.kinds) > 0 {
			jobs, err = o.chosen(ctx, jobs)
		}
		if finder, ok := o.Queue.(driver.GroupFinder); ok && i == 0 && len(jobs) == 0 && err == nil {
			var others []string
			others, err = finder.ReadyGroups(ctx, nil, "", maxGroups)
			groups = append(groups, slices.Compact(others)...)
		}
	}
	if err == nil {
		if o.claimed = true; len(jobs) == 0 {
			o.cancel()
		}
	}
	return jobs, err
}

// chosen is the first job of the kind. It gives back the others.
func (o *oneJob) chosen(ctx context.Context, jobs []penstock.Job) (one []penstock.Job, err error) {
	var others []int64
	for i := range jobs {
		if len(one) == 0 && jobs[i].Kind() == o.kinds[0] {
			one = jobs[i : i+1]
		} else {
			others = append(others, jobs[i].Lease)
		}
	}
	if len(others) > 0 {
		_, err = o.Release(ctx, 0, others...)
	}
	return one, err
}

func (o *oneJob) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	return o.Queue.(driver.Releaser).Release(ctx, after, leases...)
}

// RefusesRole has Run end, instead of waiting for a right.
func (o *oneJob) RefusesRole(err error) bool {
	judge, ok := o.Queue.(driver.RoleJudge)
	return ok && judge.RefusesRole(err)
}

func (o *oneJob) Claimed(int)                     {}
func (o *oneJob) Started(penstock.Job, time.Time) {}

func (o *oneJob) Ended(job penstock.Job, how work.End, _ time.Duration) {
	o.job, o.how = job, how
	o.cancel()
}

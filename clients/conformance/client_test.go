package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/clients/conformance"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// client is a program's client of one database.
type client struct {
	*program
	db string
}

func (p *program) open(t testing.TB, url string) *client {
	t.Helper()
	c := &client{program: p}
	var opened struct {
		DB string `json:"db"`
	}
	must(t, p.call(t.Context(), "open", args{"url": url}, &opened))
	c.db = opened.DB
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		_ = p.call(ctx, "close", args{"db": c.db}, nil) // a program that has ended has closed it
	})
	return c
}

func (c *client) with(more args) args {
	all := args{"db": c.db}
	for name, value := range more {
		all[name] = value
	}
	return all
}

// remoteTx is a transaction in the program.
type remoteTx struct {
	c    *client
	tx   string
	kind string
	done bool
}

// begin takes the kinds of transactions in turn, to cover all of them.
func (c *client) begin(ctx context.Context) (*remoteTx, error) {
	kinds := c.hello.Kinds
	return c.beginAs(ctx, kinds[int(c.kinds.Add(1)-1)%len(kinds)])
}

func (c *client) beginAs(ctx context.Context, kind string) (*remoteTx, error) {
	t := &remoteTx{c: c, kind: kind}
	var begun struct {
		Tx string `json:"tx"`
	}
	err := c.call(ctx, "begin", c.with(args{"kind": kind}), &begun)
	t.tx = begun.Tx
	return t, t.failed(err)
}

// failed turns an error into the one that Go has for it, and names the kind.
func (t *remoteTx) failed(err error, unknown ...error) error {
	if err = known(err, unknown...); err != nil {
		err = fmt.Errorf("%s transaction: %w", t.kind, err)
	}
	return err
}

// known returns Go's error for a name; unknown is the error for an unknown name.
func known(err error, unknown ...error) error {
	var e *conformance.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Field != "":
		return &penstock.FieldError{Field: conformance.FieldOf(e.Field), Problem: e.Message}
	case e.SQLState == "42P01" && len(unknown) > 0:
		return fmt.Errorf("%w: %w", unknown[0], err)
	case e.SQLState == "PS001":
		return fmt.Errorf("%w: %w", penstock.ErrLeaseLost, err)
	case e.SQLState == "22023" || e.SQLState == "23514" || e.SQLState == "22021":
		return &penstock.FieldError{Field: "lease", Problem: e.Message} // for a value that is neither a message nor a job
	}
	return fmt.Errorf("%w (SQLSTATE %q)", err, e.SQLState)
}

// maxPayload is the largest payload that fits into a line. Larger ones are not tested.
const maxPayload = conformance.MaxLine / 2

// Publish makes the client publish, by the call for one message or the one for many.
func (t *remoteTx) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	wire := make([]conformance.Message, len(msgs))
	for i, m := range msgs {
		texts := []string{m.ID, m.Key, m.Topic}
		for name, value := range m.Headers {
			texts = append(texts, name, value)
		}
		if !carried(m.Payload, texts) {
			return m.Validate()
		}
		wire[i] = conformance.Message{Payload: append([]byte{}, m.Payload...), ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: m.Headers}
	}
	with := args{"tx": t.tx, "outbox": outbox, "messages": wire}
	if len(wire) == 1 {
		with["message"] = wire[0]
		delete(with, "messages")
		return t.failed(t.c.call(ctx, "publish", with, nil), penstock.ErrNoOutbox)
	}
	return t.failed(t.c.call(ctx, "publish_many", with, nil), penstock.ErrNoOutbox)
}

// carried reports whether JSON can carry it.
func carried(payload []byte, texts []string) bool {
	return len(payload) <= maxPayload && utf8.ValidString(strings.Join(texts, "\x00"))
}

// Enqueue makes the client enqueue, by the call for one job or the one for many.
func (t *remoteTx) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	wire := make([]conformance.NewJob, len(jobs))
	for i, j := range jobs {
		texts := []string{j.Kind, j.Key, j.Group, j.DedupKey}
		for name, value := range j.Headers {
			texts = append(texts, name, value)
		}
		if !carried(j.Payload, texts) || j.NotBefore.Year() < 0 || j.NotBefore.Year() > 9999 { // JSON has no such time
			return nil, j.Validate()
		}
		wire[i] = conformance.NewJob{Payload: append([]byte{}, j.Payload...), Kind: j.Kind, Key: j.Key, GroupKey: j.Group, Priority: j.Priority, DedupKey: j.DedupKey, Headers: j.Headers,
			UniqueKey: j.UniqueKey, OnConflict: j.OnConflict, DebounceMax: j.DebounceMax.Milliseconds(), MaxAttempts: j.MaxAttempts, Timeout: j.Timeout.Milliseconds(),
			Holds: conformance.ID(j.Holds), WaitsFor: conformance.IDs(j.WaitsFor), OnDead: j.OnDead}
		if !j.NotBefore.IsZero() {
			at := j.NotBefore.UTC().Truncate(time.Microsecond)
			wire[i].NotBefore = &at
		}
		if !j.Deadline.IsZero() {
			at := j.Deadline.UTC().Truncate(time.Microsecond)
			wire[i].Deadline = &at
		}
	}
	made := make([]conformance.Enqueued, 1)
	var err error
	if len(wire) == 1 {
		err = t.c.call(ctx, "enqueue", args{"tx": t.tx, "queue": queue, "job": wire[0]}, &made[0])
	} else {
		err = t.c.call(ctx, "enqueue_many", args{"tx": t.tx, "queue": queue, "jobs": wire}, &made)
	}
	if err != nil {
		return nil, t.failed(err, penstock.ErrNoQueue)
	}
	all := make([]penstock.Enqueued, len(made))
	for i, m := range made {
		all[i] = penstock.Enqueued{ID: int64(m.ID), Deduplicated: m.Deduplicated}
	}
	return all, nil
}

func (t *remoteTx) barrier(ctx context.Context, queue string) (b conformance.ID, err error) {
	return b, t.failed(t.c.call(ctx, "barrier", args{"tx": t.tx, "queue": queue}, &b), penstock.ErrNoQueue)
}

func (t *remoteTx) seal(ctx context.Context, queue string, b int64) error {
	return t.failed(t.c.call(ctx, "seal", args{"tx": t.tx, "queue": queue, "barrier": conformance.ID(b)}, nil), penstock.ErrNoQueue)
}

func (t *remoteTx) publishAfter(ctx context.Context, queue string, m penstock.WaitingMessage) (id conformance.ID, err error) {
	with := args{"tx": t.tx, "queue": queue, "outbox": m.Outbox, "waits_for": conformance.IDs(m.WaitsFor),
		"message": conformance.Message{Payload: append([]byte{}, m.Payload...), ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: m.Headers}}
	if m.OnDead != "" {
		with["on_dead"] = m.OnDead
	}
	err = t.c.call(ctx, "publish_after", with, &id)
	missing := penstock.ErrNoQueue
	if err != nil && (strings.Contains(err.Error(), "no such outbox") || strings.Contains(err.Error(), "there is no outbox")) {
		missing = penstock.ErrNoOutbox
	}
	return id, t.failed(err, missing)
}

func (t *remoteTx) execute(ctx context.Context, sql string) (rows [][]*string, err error) {
	return rows, t.failed(t.c.call(ctx, "execute", args{"tx": t.tx, "sql": sql}, &rows))
}

// Count runs a statement of the caller in the same transaction.
func (t *remoteTx) Count(ctx context.Context, name string) (n int64, err error) {
	rows, err := t.execute(ctx, "insert into counter values ('"+strings.ReplaceAll(name, "'", "''")+"', 1) on conflict (name) do update set n = counter.n + 1 returning n")
	if err != nil {
		return 0, err
	}
	if len(rows) != 1 || len(rows[0]) != 1 || rows[0][0] == nil {
		return 0, fmt.Errorf("%s transaction: execute returned %v, want one text", t.kind, rows)
	}
	_, err = fmt.Sscan(*rows[0][0], &n)
	return n, err
}

func (t *remoteTx) first(ctx context.Context, consumer, id string) (first bool, err error) {
	return first, t.failed(t.c.call(ctx, "inbox_first", args{"tx": t.tx, "consumer": consumer, "message_id": id}, &first), penstock.ErrNoInbox)
}

func (t *remoteTx) Commit(ctx context.Context) error   { return t.end(ctx, "commit") }
func (t *remoteTx) Rollback(ctx context.Context) error { return t.end(ctx, "rollback") }

func (t *remoteTx) end(ctx context.Context, how string) error {
	if t.done || t.tx == "" {
		return nil
	}
	t.done = true
	return t.failed(t.c.call(ctx, how, args{"tx": t.tx}, nil))
}

// remoteQueue is a queue as the client sees it.
type remoteQueue struct {
	c    *client
	name string
	driver.GroupFinder
}

func (q remoteQueue) call(ctx context.Context, op string, with args, result any) error {
	with["queue"] = q.name
	return known(q.c.call(ctx, op, q.c.with(with), result), penstock.ErrNoQueue)
}

func (q remoteQueue) Enqueue(ctx context.Context, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return committed(ctx, q.c, func(t *remoteTx) ([]penstock.Enqueued, error) { return t.Enqueue(ctx, q.name, jobs...) })
}

// committed makes calls in a transaction, and commits it.
func committed[T any](ctx context.Context, c *client, calls func(t *remoteTx) (T, error)) (result T, err error) {
	t, err := c.begin(ctx)
	if err != nil {
		return result, err
	}
	defer func() { _ = t.Rollback(context.WithoutCancel(ctx)) }()
	if result, err = calls(t); err != nil {
		return result, err
	}
	return result, t.Commit(ctx)
}

// Barrier and Seal implement driver.BarrierQueue.
func (q remoteQueue) Barrier(ctx context.Context) (int64, error) {
	b, err := committed(ctx, q.c, func(t *remoteTx) (conformance.ID, error) { return t.barrier(ctx, q.name) })
	return int64(b), err
}

func (q remoteQueue) Seal(ctx context.Context, b int64) error {
	_, err := committed(ctx, q.c, func(t *remoteTx) (any, error) { return nil, t.seal(ctx, q.name, b) })
	return err
}

// PublishAfter implements driver.WaitingPublisher.
func (q remoteQueue) PublishAfter(ctx context.Context, m penstock.WaitingMessage) (int64, error) {
	id, err := committed(ctx, q.c, func(t *remoteTx) (conformance.ID, error) { return t.publishAfter(ctx, q.name, m) })
	return int64(id), err
}

func (q remoteQueue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	_, jobs, err := q.claim(ctx, args{}, c)
	return jobs, err
}

func (q remoteQueue) AckClaim(ctx context.Context, acks []int64, c driver.Claim) ([]int64, []penstock.Job, error) {
	return q.claim(ctx, args{"acks": conformance.IDs(acks)}, c)
}

func (q remoteQueue) AckClaimGroups(ctx context.Context, acks []int64, groups []string, c driver.Claim) ([]int64, []penstock.Job, error) {
	var each []string
	for _, g := range groups {
		each = append(each, slices.Repeat([]string{g}, c.Jobs)...)
	}
	return q.claim(ctx, args{"acks": conformance.IDs(acks), "groups": each}, c)
}

func (q remoteQueue) claim(ctx context.Context, with args, c driver.Claim) ([]int64, []penstock.Job, error) {
	if !carried(nil, []string{c.Group, c.Worker}) {
		return nil, nil, c.Validate()
	}
	with["n"], with["lease_ms"], with["group_key"], with["worker"] = c.Jobs, c.Lease.Milliseconds(), c.Group, c.Worker
	var claimed conformance.Claimed
	if err := q.call(ctx, "claim", with, &claimed); err != nil {
		return nil, nil, err
	}
	var jobs []penstock.Job
	for _, j := range claimed.Jobs {
		jobs = append(jobs, j.Job())
	}
	acked := conformance.Numbers(claimed.Acked)
	if claimed.Full {
		acked = append(acked, driver.Full)
	}
	return acked, jobs, nil
}

func (q remoteQueue) held(ctx context.Context, op string, leases []int64, with args) ([]int64, error) {
	with["leases"] = conformance.IDs(leases)
	var held []conformance.ID
	err := q.call(ctx, op, with, &held)
	return conformance.Numbers(held), err
}

func (q remoteQueue) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	return q.held(ctx, "extend", leases, args{"by_ms": lease.Milliseconds()})
}

func (q remoteQueue) Ack(ctx context.Context, leases ...int64) ([]int64, error) {
	return q.held(ctx, "ack", leases, args{})
}

func (q remoteQueue) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	return q.held(ctx, "release", leases, args{"after_ms": after.Milliseconds()})
}

func (q remoteQueue) Retry(ctx context.Context, lease int64, after time.Duration, reason string) (bool, error) {
	with := args{"lease": conformance.ID(lease), "error": strings.ToValidUTF8(reason, "\uFFFD")}
	if after >= 0 {
		with["after_ms"] = after.Milliseconds()
	}
	var ended struct {
		Dead bool `json:"dead"`
	}
	err := q.call(ctx, "retry", with, &ended)
	return ended.Dead, err
}

func (q remoteQueue) DeadLetter(ctx context.Context, lease int64, reason string) error {
	return q.call(ctx, "dead_letter", args{"lease": conformance.ID(lease), "error": strings.ToValidUTF8(reason, "\uFFFD")}, nil)
}

func (q remoteQueue) Report(ctx context.Context, lease int64, report []byte) error {
	return q.call(ctx, "report", args{"lease": conformance.ID(lease), "report": string(report)}, nil)
}

func (q remoteQueue) Maintain(ctx context.Context) error { return q.call(ctx, "maintain", args{}, nil) }

// work is work.Run, by the client's worker.
func (q remoteQueue) work(ctx context.Context, h func(ctx context.Context, tx string, j penstock.Job) error, o work.Options, more args) error {
	with := q.c.with(args{"queue": q.name})
	for name, value := range map[string]int64{"concurrency": int64(o.Concurrency), "batch": int64(o.Batch), "lease_ms": o.Lease.Milliseconds(), "drain_ms": o.DrainTimeout.Milliseconds()} {
		if value != 0 {
			with[name] = value
		}
	}
	if o.Worker != "" {
		with["worker_name"] = o.Worker
	}
	if len(o.Groups) > 0 {
		with["groups"] = o.Groups
	}
	if o.AllGroups {
		with["all_groups"] = true
	}
	for name, value := range more {
		with[name] = value
	}
	return q.c.program.work(ctx, with, h)
}

// remoteStore is the Go store, except that the client publishes and has the queues.
type remoteStore struct {
	*postgres.Store
	c      *client
	closed atomic.Bool
}

// Close also closes the client, which belongs to the store.
func (s *remoteStore) Close() error {
	s.closed.Store(true)
	return s.Store.Close()
}

func (s *remoteStore) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	if s.closed.Load() {
		return penstock.ErrClosed
	}
	_, err := committed(ctx, s.c, func(t *remoteTx) (any, error) { return nil, t.Publish(ctx, outbox, msgs...) })
	return err
}

func (s *remoteStore) DriverQueue(name string) driver.Queue {
	return remoteQueue{s.c, name, s.Store.Queue(name)}
}

func openStore(t testing.TB, url string) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(context.Background(), url, postgres.Options{})
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// connect is a connection for a test's own statements.
func (g *goal) connect() *pgx.Conn {
	g.Helper()
	conn, err := pgx.Connect(g.ctx, g.url)
	must(g, err)
	g.Cleanup(func() { _ = conn.Close(context.WithoutCancel(g.ctx)) })
	return conn
}

func execute(t testing.TB, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(context.Background(), sql)
	must(t, err)
}

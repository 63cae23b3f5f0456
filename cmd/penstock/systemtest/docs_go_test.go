package systemtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql's driver
	"github.com/prometheus/client_golang/prometheus"
	otrace "go.opentelemetry.io/otel/trace"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/discard"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/trace"
	"github.com/penstock/penstock/work"
	"github.com/penstock/penstock/writer"
)

// goDocs is a database for the Go code on pages. Each test here has the lines of a block in their order. The lines between them define the
// reader's names, and check the effects.
type goDocs struct {
	*testing.T
	ctx   context.Context
	url   string
	pool  *pgxpool.Pool
	store *postgres.Store
}

// newGoDocs requires that the test has the lines of a page's block, and creates the database.
func newGoDocs(t *testing.T, page string, block int) *goDocs {
	t.Helper()
	docblock.Excerpt(t, docblock.Of(t, page, "go")[block], "docs_go_test.go", "func "+t.Name()+"(")
	d := &goDocs{T: t, ctx: t.Context(), url: postgrestest.Database(t)}
	var err error
	d.pool, err = pgxpool.New(d.ctx, d.url)
	d.must(err)
	t.Cleanup(d.pool.Close)
	d.store = postgres.New(d.pool, postgres.Options{})
	d.must(errors.Join(d.store.Migrate(d.ctx), d.store.CreateOutbox(d.ctx, "orders"), d.store.CreateQueue(d.ctx, "emails", penstock.FIFO),
		d.store.CreateInbox(d.ctx, "billing", 0)))
	_, err = d.pool.Exec(d.ctx, "create table sent (job bigint)")
	d.must(err)
	return d
}

func (d *goDocs) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// in runs a part of a block in a transaction.
func (d *goDocs) in(part func(tx pgx.Tx) error) {
	d.Helper()
	d.must(pgx.BeginFunc(d.ctx, d.pool, part))
}

func (d *goDocs) enqueue(queue string, payloads ...string) {
	d.Helper()
	for _, p := range payloads {
		_, err := d.store.Queue(queue).Enqueue(d.ctx, penstock.NewJob{Payload: []byte(p)})
		d.must(err)
	}
}

// wants compares the one column of a query.
func (d *goDocs) wants(query string, want ...string) {
	d.Helper()
	rows, err := d.pool.Query(d.ctx, query)
	d.must(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	d.must(err)
	if !slices.Equal(got, want) {
		d.Errorf("%s: %q, want %q", query, got, want)
	}
}

// until is a context that ends with the last of n calls, and the function that is called.
func (d *goDocs) until(n int) (context.Context, func()) {
	ctx, stop := context.WithCancel(d.ctx)
	d.Cleanup(stop)
	return ctx, func() {
		if n--; n == 0 {
			stop()
		}
	}
}

const published = "select convert_from(payload, 'UTF8') from penstock.orders order by seq"

func TestGettingStartedInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/start/getting-started.md", 0)
	ctx, pool, body := d.ctx, d.pool, []byte("body")
	db, err := sql.Open("pgx", d.url)
	d.must(err)
	defer db.Close()
	sqlTx, err := db.BeginTx(ctx, nil)
	d.must(err)
	d.in(func(tx pgx.Tx) error {
		store := postgres.New(pool, postgres.Options{}) // on your *pgxpool.Pool; or postgres.Open(ctx, url, …), sqlite.Open, mysql.Open, portable.New
		orders := store.Outbox("orders")
		m := penstock.Message{Key: "customer-42", Topic: "order.placed", Payload: body}
		err := orders.PublishTx(ctx, tx, m) // in your pgx transaction
		d.must(err)
		err = orders.PublishSQL(ctx, sqlTx, m) // in a *sql.Tx on PostgreSQL
		d.must(errors.Join(err, sqlTx.Commit()))
		err = orders.Publish(ctx, m) // in a separate transaction
		return err
	})
	d.wants(published, "body", "body", "body")
}

func TestGettingStartedWorksInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/start/getting-started.md", 1)
	store := d.store
	d.enqueue("emails", "to ann")
	ctx, done := d.until(1)
	send := func(_ context.Context, payload []byte) error {
		done()
		return d.check("to ann", string(payload))
	}
	err := work.Run(ctx, store.Queue("emails"), func(ctx context.Context, job penstock.Job) error {
		return send(ctx, job.Payload)
	}, work.Options{Concurrency: 20})
	d.must(err)

	d.enqueue("emails", "2")
	ctx, stop := context.WithCancel(d.ctx)
	go func() {
		defer stop()
		eventually(t, "the job is done", func() bool { return count(t, d.url, "select count(*) from sent") == 1 })
	}()
	err = postgres.WorkTx(ctx, store, "emails", func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
		_, err := tx.Exec(ctx, "insert into sent (job) values ($1)", job.ID) // gone together with the job, or not at all
		return err
	}, work.Options{})
	d.must(err)
	d.wants("select (ready + running + waiting)::text from penstock.queue_status('emails')", "0")
	d.wants("select count(*)::text from sent", "1")
}

// check is an error unless got is want.
func (d *goDocs) check(want, got string) error {
	if got != want {
		d.Errorf("%q, want %q", got, want)
		return errors.New("not what was sent")
	}
	return nil
}

func TestBufferingInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/guides/buffering.md", 0)
	ctx, pool, orders := d.ctx, d.pool, d.store.Outbox("orders")
	placed := []struct {
		Customer string
		JSON     []byte
	}{{"ann", []byte("1")}, {"bob", []byte("2")}}
	err := pgx.BeginFunc(ctx, postgres.NewBuffered(pool, penstock.BufferOptions{}), func(tx pgx.Tx) error {
		for _, o := range placed {
			if err := orders.PublishTx(ctx, tx, penstock.Message{Key: o.Customer, Topic: "order.placed", Payload: o.JSON}); err != nil {
				return err
			}
		}
		return nil
	})
	d.must(err)
	d.wants(published, "1", "2")
}

func TestWriterInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/guides/buffering.md", 1)
	ctx, store, body := d.ctx, d.store, []byte("body")
	w := writer.New(store, writer.Options{}) // any store of this module; one for the process
	err := w.Publish(ctx, "orders", penstock.Message{Key: "ann", Payload: body})
	d.must(err)
	made, err := w.Enqueue(ctx, "emails", penstock.NewJob{Payload: body})
	if err != nil || len(made) != 1 || made[0].ID == 0 {
		t.Error(made, err)
	}
	err = w.Close(ctx) // returns when all is written
	d.must(err)
	d.wants(published, "body")
	d.wants("select ready::text from penstock.queue_status('emails')", "1")
}

func TestInboxInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/guides/inbox.md", 0)
	ctx, pool, store, log := d.ctx, d.pool, d.store, slog.New(slog.NewTextHandler(t.Output(), nil))
	key, headers, payload := "customer 7", map[string]string{penstock.HeaderPrevious: "m0"}, []byte("10")
	var booked []string
	book := func(ctx context.Context, tx pgx.Tx, payload []byte) error {
		booked = append(booked, string(payload))
		_, err := tx.Exec(ctx, "insert into sent (job) values ($1::text::bigint)", string(payload))
		return err
	}
	handler := func(ctx context.Context, tx pgx.Tx, r penstock.Released) error { return book(ctx, tx, r.Payload) }
	for _, id := range []string{"m1", "m1", "m2"} {
		box := store.Inbox("billing")

		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			isNew, err := box.First(ctx, tx, id) // FirstSQL for database/sql
			if err != nil || !isNew {
				return err
			}
			return book(ctx, tx, payload)
		})
		d.must(err)
		id += " in order" // the inbox knows the other one

		// In order: a transaction around each call, and a handler for each message.
		m := penstock.Message{ID: id, Key: key, Headers: headers, Payload: payload}
		err = box.Process(ctx, pool, m, 30*time.Second, func(ctx context.Context, tx pgx.Tx, r penstock.Released) error {
			if r.Gap {
				log.Warn("a message is missing", "before", r.ID, "missing", r.Missing)
			}
			return book(ctx, tx, r.Payload)
		})
		d.must(err)
		if _, err := pool.Exec(ctx, "select penstock.inbox_release('billing', key => $1)", key); err != nil { // as if the 30 seconds were over
			t.Fatal(err)
		}
		n, err := box.ProcessDue(ctx, pool, handler) // about once a second
		d.must(err)
		booked = append(booked, strings.Repeat("due ", n))
	}
	if want := []string{"10", "10", "due ", "", "10", "10", ""}; !slices.Equal(booked, want) {
		t.Errorf("booked %q, want %q: m1 and m2 once each, and each once in order, the first when the gap was given up", booked, want)
	}
	d.wants("select count(*)::text from sent", "4")
}

func TestQueuesInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/guides/queues.md", 1)
	store, body := d.store, []byte(`{"to": "ann"}`)
	type mail struct {
		To string `json:"to"`
	}
	d.in(func(tx pgx.Tx) error {
		ctx := d.ctx
		emails := store.Queue("emails")
		_, err := emails.EnqueueTx(ctx, tx, penstock.NewJob{Key: "customer 7", Payload: body}) // in your own pgx transaction
		return err
	})
	d.wants("select key from penstock.emails", "customer 7")

	emails := store.Queue("emails")
	ctx, done := d.until(1)
	handler := func(_ context.Context, job penstock.Job) error {
		done()
		return d.check(string(body), string(job.Payload))
	}
	var err error
	err = work.Run(ctx, emails, handler, work.Options{Concurrency: 20})
	d.must(err)

	d.enqueue("emails", string(body))
	ctx, done = d.until(1)
	send := func(_ context.Context, m mail) error {
		done()
		return d.check("ann", m.To)
	}
	err = work.Run(ctx, emails, work.JSON(func(ctx context.Context, m mail, job penstock.Job) error { return send(ctx, m) }), work.Options{}) // typed
	d.must(err)

	d.enqueue("emails", string(body))
	ctx, done = d.until(1)
	txHandler := func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
		done()
		return d.check(string(body), string(job.Payload))
	}
	err = postgres.WorkTx(ctx, store, "emails", txHandler, work.Options{}) // effects in this database exactly once
	d.must(err)
	d.wants("select (ready + running + waiting + delayed)::text from penstock.queue_status('emails')", "0")
}

// The message is there when all lines have shipped, once, though one does not ship at first.
func TestBatchesInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/guides/queues.md", 0)
	emails := d.store.Queue("emails")
	lines, order := [][]byte{[]byte("shoes"), []byte("socks"), []byte("laces")}, []byte("order 42")
	d.in(func(tx pgx.Tx) error {
		ctx := d.ctx
		shipped, err := emails.BarrierTx(ctx, tx) // in the transaction of the order
		d.must(err)
		for _, line := range lines {
			_, err = emails.EnqueueTx(ctx, tx, penstock.NewJob{Kind: "ship", Payload: line, Holds: shipped})
			d.must(err)
		}
		announcement := penstock.Message{Topic: "order.shipped", Payload: order}
		_, err = emails.PublishAfterTx(ctx, tx, penstock.WaitingMessage{Message: announcement, Outbox: "orders", WaitsFor: []int64{shipped}})
		d.must(err)
		err = emails.SealTx(ctx, tx, shipped)
		return err
	})
	ctx, done := d.until(len(lines))
	var failed atomic.Bool
	handler := func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
		if string(job.Payload) == "socks" && !failed.Swap(true) {
			return penstock.RetryAfter(errors.New("no parcel yet"), 0)
		}
		var messages int
		err := tx.QueryRow(ctx, "select count(*) from penstock.orders").Scan(&messages)
		if messages != 0 {
			t.Errorf("the message was there before %s had shipped", job.Payload)
		}
		done()
		return err
	}
	err := postgres.WorkTx(ctx, d.store, "emails", handler, work.Options{})
	d.must(err)
	d.wants("select topic || ' ' || convert_from(payload, 'UTF8') from penstock.orders", "order.shipped order 42")
	d.wants("select (ready + running + waiting + delayed + dead)::text from penstock.queue_status('emails')", "0")
}

func TestKindsInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/guides/queues.md", 2)
	type mail struct {
		To string `json:"to"`
	}
	emails := d.store.Queue("emails")
	for _, kind := range []string{"welcome", "digest"} {
		_, err := emails.Enqueue(d.ctx, penstock.NewJob{Kind: kind, Payload: []byte(`{"to": "` + kind + `"}`)})
		d.must(err)
	}
	ctx, done := d.until(2)
	send := func(kind string) func(context.Context, mail, penstock.Job) error {
		return func(_ context.Context, m mail, job penstock.Job) error {
			done()
			return d.check(kind+kind, m.To+job.Kind())
		}
	}
	var logs atomic.Int32
	sendWelcome, sendDigest := send("welcome"), send("digest")
	logged := func(h work.Handler) work.Handler {
		return func(ctx context.Context, job penstock.Job) error {
			logs.Add(1)
			return h(ctx, job)
		}
	}

	var mux work.Mux
	mux.Handle("welcome", work.JSON(sendWelcome))
	mux.Handle("digest", work.JSON(sendDigest), work.Timeout(time.Minute), work.MaxAttempts(3)) // for this kind alone
	mux.Use(logged)                                                                             // func(work.Handler) work.Handler, for all
	err := work.Run(ctx, emails, mux.Handler(), work.Options{})
	d.must(err)
	if n := logs.Load(); n != 2 {
		t.Errorf("the middleware saw %d jobs, want 2", n)
	}
	d.wants("select (ready + running + waiting + delayed + dead)::text from penstock.queue_status('emails')", "0")
}

func TestStepsInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/guides/queues.md", 3)
	emails := d.store.Queue("emails")
	_, err := emails.Enqueue(d.ctx, penstock.NewJob{Payload: []byte("socks")})
	d.must(err)
	ctx, done := d.until(2)
	var charged, shipped atomic.Int32
	charge := func(_ context.Context, order []byte, key string) (string, error) {
		charged.Add(1)
		return string(order) + " " + key, nil
	}
	ship := func(_ context.Context, order []byte, receipt string) error {
		done()
		if err := d.check("socks order 1", receipt); err != nil {
			return err
		}
		if shipped.Add(1) == 1 {
			return penstock.RetryAfter(errors.New("no parcel yet"), 0)
		}
		return nil
	}

	handler := func(ctx context.Context, job penstock.Job) error {
		receipt, err := work.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return charge(ctx, job.Payload, fmt.Sprintf("order %d", job.ID)) // the provider takes such a key once
		})
		if err != nil {
			return err
		}
		return ship(ctx, job.Payload, receipt)
	}
	d.must(work.Run(ctx, emails, handler, work.Options{}))
	if n := charged.Load(); n != 1 {
		t.Errorf("charged %d times, want once", n)
	}
}

func TestMetricsInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/reference/metrics.md", 0)
	store := d.store
	d.must(store.Outbox("orders").Publish(d.ctx, penstock.Message{Topic: "t", Payload: []byte("1")}))
	d.enqueue("emails", "1")
	sink, err := discard.Open(discard.Config{}, slog.New(slog.DiscardHandler))
	d.must(err)
	ctx, done := d.until(1)
	handle := func(context.Context, penstock.Job) error {
		done()
		return nil
	}
	m := metrics.New(metrics.Options{Store: store})
	prometheus.MustRegister(m)
	defer prometheus.Unregister(m)
	r, err := relay.New(store, "orders", "billing", sink, relay.Options{Observer: m.Relay("orders", "billing")}) // a relay, for r.Run(ctx)
	d.must(err)
	err = work.Run(ctx, store.Queue("emails"), handle, work.Options{Observer: m.Worker("emails")}) // a worker
	d.must(err)

	ctx, stop := context.WithCancel(d.ctx)
	go func() {
		defer stop()
		relayed(t, d.url, "orders")
	}()
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	all, err := prometheus.DefaultGatherer.Gather()
	d.must(err)
	var found []string
	for _, family := range all {
		for _, one := range family.Metric {
			if of := one.GetCounter().GetValue(); of == 1 && (family.GetName() == "penstock_relay_sent_messages_total" || family.GetName() == "penstock_worker_claimed_jobs_total") {
				found = append(found, family.GetName())
			}
		}
	}
	if len(found) != 2 {
		t.Errorf("the registry has %q, want a message that was delivered and a job that was claimed", found)
	}
}

func TestTracesInGo(t *testing.T) {
	t.Parallel()
	d := newGoDocs(t, "docs/reference/metrics.md", 1)
	of := otrace.NewSpanContext(otrace.SpanContextConfig{TraceID: otrace.TraceID{1}, SpanID: otrace.SpanID{2}, TraceFlags: otrace.FlagsSampled})
	ctx := otrace.ContextWithSpanContext(d.ctx, of)
	var message penstock.Message
	var lines strings.Builder
	handler := slog.NewTextHandler(&lines, nil)
	message.Headers = trace.Inject(ctx, message.Headers)                                           // the same for jobs; then Publish or Enqueue
	options := work.Options{Middleware: []func(work.Handler) work.Handler{trace.Worker("emails")}} // for work.Run
	slog.New(trace.LogHandler(handler)).InfoContext(ctx, "…")                                      // with trace_id and span_id
	if id := "trace_id=" + of.TraceID().String() + " span_id=" + of.SpanID().String(); !strings.Contains(lines.String(), id) {
		t.Errorf("the log is %s, want %s in it", &lines, id)
	}
	_, err := d.store.Queue("emails").Enqueue(ctx, penstock.NewJob{Headers: message.Headers})
	d.must(err)
	ctx, done := d.until(1)
	d.must(work.Run(ctx, d.store.Queue("emails"), func(ctx context.Context, _ penstock.Job) error {
		done()
		return d.check(of.TraceID().String(), otrace.SpanContextFromContext(ctx).TraceID().String())
	}, options))
}

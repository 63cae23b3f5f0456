package portable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// says makes a database's version() say what another engine's does.
func says(t testing.TB, url, version string) {
	exec(t, url, "create or replace function shim.version() returns text language sql as $$ select '"+version+"'::text $$")
}

// The engine is known by version(), and Citus by its extension. One that cannot work is refused with the next step, before anything is made.
func TestEngineIsDetected(t *testing.T) {
	t.Parallel()
	needsShim(t)
	url := database(t)
	for version, want := range map[string]string{
		"PostgreSQL 15.18 (Debian 15.18-1) on x86_64-pc-linux-gnu":                               "PostgreSQL",
		"PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17": "YugabyteDB",
		"CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu, built 2024/12/01 17:23:00, go1.22)":       "CockroachDB",
	} {
		says(t, url, version)
		if got, err := openStore(t, url, portable.Options{}).Engine(t.Context()); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %s", version, got, err, want)
		}
	}
	says(t, url, "PostgreSQL 11.2-YB-2024.1.2.0-b77 on x86_64-pc-linux-gnu")
	_, err := openStore(t, url, portable.Options{}).Status(t.Context())
	if hint, ok := errors.AsType[*penstock.HintError](err); !ok || !strings.Contains(hint.Hint, "2025.1") {
		t.Errorf("of one without generated columns: %v", err)
	}
	says(t, url, "PostgreSQL 15.18 (Debian 15.18-1) on x86_64-pc-linux-gnu")
	exec(t, url, "create view shim.pg_extension as select 'citus' as extname")
	if got, err := openStore(t, url, portable.Options{}).Engine(t.Context()); err != nil || got != "Citus" {
		t.Errorf("with the extension: %q, %v", got, err)
	}
}

// Ten processes start at once, and some of them die on the way. The server refuses definitions for others' sake, and loses connections
// before and after it has made them. In the end there is all that one alone makes, and of ten that create an outbox one does.
func TestTenStartAtOnce(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	fresh := func() string {
		url := testserver.Database(t, testserver.PostgresURL(t))
		if err := without(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		return shimmed(t, url)
	}
	alone, shared := fresh(), fresh()
	one := openStore(t, alone, portable.Options{})
	if err := errors.Join(one.Migrate(t.Context()), one.CreateOutbox(t.Context(), "orders"), one.CreateQueue(t.Context(), "mails", penstock.LIFO)); err != nil {
		t.Fatal(err)
	}
	p := wire.New()
	rnd, lives := testseed.New(t.Name(), 0), testseed.New(t.Name(), 1)
	var mu sync.Mutex
	next := eachFault(rnd)
	p.Decide(func(trip []byte) wire.Fault {
		if text := string(trip); !strings.Contains(text, "create ") && !strings.Contains(text, "drop table") {
			return wire.Pass
		}
		return next(trip)
	})
	through := p.Postgres(t, shared)
	const processes = 10
	var all sync.WaitGroup
	made := make([]error, processes)
	for i := range processes {
		all.Go(func() {
			until := func(what string, try func(ctx context.Context, s *portable.Store) error) error {
				for {
					store, err := portable.Open(t.Context(), through, portable.Options{})
					if err != nil {
						return err
					}
					mu.Lock()
					life := 5 * time.Second
					if lives.IntN(4) == 0 { // it dies on the way
						life = time.Duration(lives.IntN(100)) * time.Millisecond
					}
					mu.Unlock()
					ctx, cancel := context.WithTimeout(t.Context(), life)
					err = try(ctx, store)
					cancel()
					_ = store.Close()
					if retry.Collided(err) {
						return fmt.Errorf("%s: another process shows: %w", what, err)
					}
					if err == nil || errors.Is(err, penstock.ErrOutboxExists) || errors.Is(err, penstock.ErrQueueExists) || t.Context().Err() != nil {
						return err
					}
				}
			}
			if err := until("migrate", func(ctx context.Context, s *portable.Store) error { return s.Migrate(ctx) }); err != nil {
				made[i] = err
				return
			}
			for what, try := range map[string]func(ctx context.Context, s *portable.Store) error{
				"outbox": func(ctx context.Context, s *portable.Store) error { return s.CreateOutbox(ctx, "orders") },
				"queue":  func(ctx context.Context, s *portable.Store) error { return s.CreateQueue(ctx, "mails", penstock.LIFO) },
			} {
				if err := until(what, try); err != nil && !errors.Is(err, penstock.ErrOutboxExists) && !errors.Is(err, penstock.ErrQueueExists) {
					made[i] = err
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(made...); err != nil {
		t.Fatal(err)
	}
	p.Decide(nil)
	t.Logf("%d refused, %d cut before, %d after", p.Happened(wire.Refuse), p.Happened(wire.CutBefore), p.Happened(wire.CutAfter))
	if p.Happened(wire.Refuse) == 0 || p.Happened(wire.CutAfter) == 0 {
		t.Error("nothing was injected")
	}
	if got, want := catalogue(t, shared), catalogue(t, alone); got != want {
		t.Errorf("ten made\n%s\none alone made\n%s", got, want)
	}
	store := openStore(t, shared, portable.Options{})
	if err := store.Publish(t.Context(), "orders", penstock.Message{Key: "k", Payload: []byte("x")}); err != nil {
		t.Error(err)
	}
	if _, err := store.Queue("mails").Enqueue(t.Context(), penstock.NewJob{Payload: []byte("x")}); err != nil {
		t.Error(err)
	}
}

// catalogue lists the columns and indexes of the profile's tables, and the rows that say what there is.
func catalogue(t testing.TB, url string) string {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), `select table_name || '.' || column_name || ' ' || data_type || ' ' || coalesce(column_default, generation_expression, '') from information_schema.columns where table_schema = 'penstock_portable'
		union all select regexp_replace(indexdef, '"?penstock_portable"?\.', '', 'g') from pg_indexes where schemaname = 'penstock_portable'
		union all select 'version ' || version from penstock_portable.version
		union all select 'outbox ' || name from penstock_portable.outboxes union all select 'queue ' || name from penstock_portable.queues order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d lines\n%s", len(lines), strings.Join(lines, "\n"))
}

// Where a server repeats a statement as long as its result fits a buffer of 256 KiB, results fit it, of claims and fetches of far
// more. All rows that were asked for come all the same.
func TestResultsFitTheBuffer(t *testing.T) {
	t.Parallel()
	const buffer, jobs = 256 << 10, 100
	payload := []byte(strings.Repeat("x", 10_000))
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	p := wire.New()
	store := openStore(t, p.Postgres(t, f.url), portable.Options{})
	q := store.Queue("jobs")
	if _, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour}); err != nil { // the driver knows the statements now
		t.Fatal(err)
	}
	portable.BoundResults(store)
	src, err := store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	f.must(err)
	defer func() { _ = src.Close(context.Background()) }()
	for range 2 { // some of them wait for their key: their payloads are not sent
		more := make([]penstock.NewJob, jobs)
		for i := range more {
			more[i] = penstock.NewJob{Payload: payload, Key: []string{"", "", "k"}[i%3]}
		}
		_, err := q.Enqueue(t.Context(), more...)
		f.must(err)
		msgs := make([]penstock.Message, jobs)
		for i := range msgs {
			msgs[i] = penstock.Message{Payload: payload}
		}
		f.must(store.Publish(t.Context(), "orders", msgs...))
	}
	p.Answer.Store(0)
	got, err := q.Claim(t.Context(), driver.Claim{Jobs: jobs, Lease: time.Hour})
	f.must(err)
	if len(got) != jobs {
		t.Errorf("%d jobs, want %d", len(got), jobs)
	}
	fetched := 0
	for {
		b, err := src.Fetch(t.Context(), plenty)
		f.must(err)
		if len(b.Messages) == 0 {
			break
		}
		fetched += len(b.Messages)
		if !b.More && fetched < 2*jobs {
			t.Errorf("after %d messages it says that there are no more", fetched)
		}
	}
	if fetched != 2*jobs {
		t.Errorf("%d messages, want %d", fetched, 2*jobs)
	}
	if n := p.Answer.Load(); n > buffer || n < buffer/4 {
		t.Errorf("the largest result had %d bytes", n)
	}
}

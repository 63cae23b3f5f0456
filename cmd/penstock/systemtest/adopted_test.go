package systemtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
)

// outboxMessages is the .NET table as its authors created it.
const outboxMessages = `create table outbox_messages (
	id uuid primary key, type varchar(255) not null, content jsonb not null,
	occurred_on_utc timestamptz not null, processed_on_utc timestamptz, error text)`

// Killed relays over an adopted table lose no row: each is delivered, and marked only after that,
// whether one relay reads them in order or several claim them.
func TestKilledRelayOfAnAdoptedTable(t *testing.T) {
	testseed.Soak(t)
	t.Parallel()
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) { killAdopted(t, workers) })
	}
}

func killAdopted(t *testing.T, workers int) {
	const rows = 1_200 // in each round
	random := testseed.New(t.Name(), 0)
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())

	a := adoptTable(t, workers)
	for range testseed.Steps(6) {
		seen := a.count()
		inserted := a.startInserting(rows, random.Uint64())
		relay := start(t, "relay", "--config", a.config)
		a.await(seen + 1 + random.IntN(rows/2))
		time.Sleep(time.Duration(random.IntN(30_000)) * time.Microsecond) // chaos, not a condition
		relay.kill()
		inserted()
	}
	last := start(t, "relay", "--config", a.config)
	last.says("took the lease") // it may have nothing to do, and handles signals by then
	eventually(t, "every row is marked", func() bool { return a.waiting() == 0 })
	last.signal(syscall.SIGTERM)
	if o := last.wait(); o.code != 0 {
		t.Errorf("the last relay ended with %d: %s", o.code, last.stderr.tail())
	}
	a.check()
}

// adoptedTable is an application's table, relayed unchanged.
type adoptedTable struct {
	t      *testing.T
	conn   *pgx.Conn
	url    string
	config string
	broker readback.Broker
	read   chan error

	mu      sync.Mutex
	arrived map[string]int // by message id
	changed chan struct{}
}

func adoptTable(t *testing.T, workers int) *adoptedTable {
	t.Helper()
	a := &adoptedTable{t: t, url: postgrestest.Database(t), read: make(chan error, 1), arrived: map[string]int{}, changed: make(chan struct{}, 1)}
	var err error
	if a.conn, err = pgx.Connect(t.Context(), a.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.conn.Close(context.Background()) })
	if _, err := a.conn.Exec(t.Context(), outboxMessages); err != nil {
		t.Fatal(err)
	}
	if a.broker, err = drivers.ReadBack(testserver.RabbitMQURL(t), "", fmt.Sprintf("penstock_test_%08x", rand.Uint32())); err != nil {
		t.Fatal(err)
	}
	if err := a.broker.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.broker.Remove(context.Background()); err != nil {
			t.Error(err)
		}
		_ = a.broker.Close()
	})
	go func() {
		a.read <- a.broker.Read(t.Context(), func(got readback.Arrival) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.arrived[got.ID]++
			select {
			case a.changed <- struct{}{}:
			default:
			}
		})
	}()
	a.config = filepath.Join(t.TempDir(), "penstock.yaml")
	content := fmt.Sprintf(`
database_url: %q
relay: {lease: %s, max_in_flight: 300}
subscriptions:
  - name: billing
    adopt: {preset: dotnet, table: public.outbox_messages, workers: %d, margin: 2s, sweep: 1s, claim_timeout: 5s}
    sink: %q
`, a.url, shortLease, workers, a.broker.SinkURL())
	if err := os.WriteFile(a.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// startInserting writes rows in small transactions from several connections. Some roll back, and
// some commit late. The returned function waits for the last.
func (a *adoptedTable) startInserting(rows int, seed uint64) (wait func()) {
	var group sync.WaitGroup
	errs := make(chan error, producers)
	for p := range producers {
		group.Go(func() {
			errs <- a.insert(rows/producers, rand.New(rand.NewPCG(seed, uint64(p))))
		})
	}
	return func() {
		a.t.Helper()
		group.Wait()
		for range producers {
			if err := <-errs; err != nil {
				a.t.Fatal(err)
			}
		}
	}
}

func (a *adoptedTable) insert(rows int, random *rand.Rand) error {
	ctx := a.t.Context()
	conn, err := pgx.Connect(ctx, a.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rolledBack := errors.New("rolled back")
	for written := 0; written < rows; {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for range 1 + random.IntN(8) {
				if _, err := tx.Exec(ctx, `insert into outbox_messages (id, type, content, occurred_on_utc)
					values (gen_random_uuid(), 'OrderPlaced', jsonb_build_object('order', $1::int), clock_timestamp() - $2::int * interval '1 ms')`, written, random.IntN(50)); err != nil {
					return err
				}
				written++
			}
			if random.IntN(10) == 0 {
				return rolledBack
			}
			return nil
		})
		if err != nil && !errors.Is(err, rolledBack) {
			return err
		}
	}
	return nil
}

func (a *adoptedTable) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.arrived)
}

// await waits until n different messages have arrived.
func (a *adoptedTable) await(n int) {
	a.t.Helper()
	deadline := time.After(patience)
	for a.count() < n {
		select {
		case <-a.changed:
		case <-deadline:
			a.t.Fatalf("%d messages arrived, waited for %d", a.count(), n)
		}
	}
}

// waiting counts the rows that are not marked.
func (a *adoptedTable) waiting() (n int) {
	a.t.Helper()
	if err := a.conn.QueryRow(a.t.Context(), "select count(*) from outbox_messages where processed_on_utc is null").Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// check compares the delivered messages with the table. No relay runs any more.
func (a *adoptedTable) check() {
	a.t.Helper()
	if err := a.broker.Finish(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	if err := <-a.read; err != nil {
		a.t.Fatal(err)
	}
	rows, err := a.conn.Query(a.t.Context(), "select id::text from outbox_messages")
	if err != nil {
		a.t.Fatal(err)
	}
	committed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		a.t.Fatal(err)
	}
	again := 0
	for _, id := range committed {
		switch n := a.arrived[id]; {
		case n == 0:
			a.t.Errorf("row %s is marked and never arrived", id)
		case n > 1:
			again++
		}
		delete(a.arrived, id)
	}
	for id := range a.arrived {
		a.t.Errorf("message %s arrived, and no row has that id", id)
	}
	a.t.Logf("%d rows, %d of them arrived more than once", len(committed), again)
}

package adopt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// TestModel has writers, whose transactions end late or are rolled back, and relays that take over
// from each other. Its sink refuses, and its connections are cut. Committed rows arrive, and rows
// that were rolled back do not. Nothing is settled that did not arrive. With one ordered reader the
// messages of a key arrive, the first time, in the order in which the key's writers took turns.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*adopt.Config){
		"ordered": func(*adopt.Config) {},
		"deleted": func(c *adopt.Config) { c.Delivered = adopt.Delete },
		"scanned": func(c *adopt.Config) { c.Columns.Order = []string{"rank"} },
		"workers": func(c *adopt.Config) { c.Workers = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
			f := newFixture(t)
			f.Exec(keyedTable)
			f.Exec("alter table shop add column rank bigint not null default nextval('shop_id_seq')")
			f.Exec("create table turns (key text primary key, n int not null)")
			c := keyedConfig()
			c.Batch, c.Sweep, c.ClaimTimeout = 50, 200*time.Millisecond, 500*time.Millisecond
			change(&c)
			w := newWorld(f, testseed.New(t.Name(), 0), c)
			w.run()
			w.check(name != "workers")
		})
	}
}

// world is the model's state.
type world struct {
	*fixture
	config    adopt.Config
	rng       *rand.Rand // of the main goroutine
	sink      collector
	committed map[string]int // by key: how many of its messages are
	mu        sync.Mutex
	stray     atomic.Bool // something was settled that has not arrived
}

func newWorld(f *fixture, rng *rand.Rand, c adopt.Config) *world {
	w := &world{fixture: f, config: c, rng: rng, committed: map[string]int{}}
	refusals := map[string]int{}
	dice := rand.New(rand.NewPCG(rng.Uint64(), 1))
	w.sink.refuse = func(m *penstock.Message) error { // under the collector's mutex
		left, known := refusals[string(m.Payload)]
		if !known && dice.IntN(20) == 0 {
			left = 1 + dice.IntN(5)
		}
		if refusals[string(m.Payload)] = left - 1; left > 0 {
			return errors.New("not now")
		}
		return nil
	}
	return w
}

func (w *world) run() {
	for k := range 8 {
		w.Exec("insert into turns values ($1, 0)", strconv.Itoa(k))
	}
	ctx, stop := context.WithCancel(w.Ctx)
	defer stop()
	var others sync.WaitGroup
	others.Go(func() { w.watch(ctx) })
	cutting, calm := context.WithCancel(ctx)
	cuts := rand.New(rand.NewPCG(w.rng.Uint64(), 2))
	others.Go(func() { w.cut(cutting, cuts) })

	relays := []*adopt.Table{w.openAs("sub", w.config), w.openAs("sub", w.config)}
	running := [2]func(){}
	start := func(i int) {
		running[i] = w.relay(relays[i], &w.sink, func(c *relay.Options) {
			c.ParkAfter, c.MaxInFlight, c.MaxAttempts, c.Holder = 2, 300, -1, strconv.Itoa(i)
		})
	}
	start(0)
	start(1)
	var writers sync.WaitGroup
	for i := range 6 {
		seed := w.rng.Uint64()
		writers.Go(func() { w.write(ctx, i, rand.New(rand.NewPCG(seed, 3))) })
	}
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }()
	for over := false; !over; {
		select {
		case <-written:
			over = true
		case <-time.After(time.Duration(300+w.rng.IntN(500)) * time.Millisecond):
			i := w.rng.IntN(2)
			running[i]()
			start(i)
		}
	}
	calm()
	defer func() {
		if w.Failed() {
			w.dump()
		}
	}()
	w.Eventually("everything has arrived and is settled", func() bool {
		return w.Number("select count(*) from shop where "+w.pending()) == 0
	})
	stop()
	others.Wait()
}

func (w *world) pending() string {
	if w.config.Delivered == adopt.Delete {
		return "true"
	}
	return "processed_at is null"
}

// dump shows the rows that are left.
func (w *world) dump() {
	for _, sql := range []string{
		"select row_to_json(s)::text from shop s where " + w.pending() + " order by id limit 10",
		"select row_to_json(r)::text from penstock._adopt_row r order by parked_key, seq limit 30",
		"select row_to_json(r)::text from penstock._adopt_log r order by epoch desc, n desc limit 3",
	} {
		rows, err := w.Conn.Query(context.Background(), sql)
		if err != nil {
			continue
		}
		lines, _ := pgx.CollectRows(rows, pgx.RowTo[string])
		w.Log(strings.Join(lines, "\n"))
	}
}

// write makes transactions. Each takes its turn with one or two keys.
func (w *world) write(ctx context.Context, writer int, rng *rand.Rand) {
	conn, err := pgx.Connect(ctx, w.URL)
	if err != nil {
		w.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for range 60 * testseed.Rounds() {
		tx, err := conn.Begin(ctx)
		if err != nil {
			w.Error(err)
			return
		}
		if rng.IntN(4) == 0 { // an id long before the place
			_, err = tx.Exec(ctx, "select pg_current_xact_id()")
			pause(rng, 20)
		}
		got := map[string]int{}
		first := rng.IntN(8)
		for _, k := range []int{first, first + 1 + rng.IntN(8)} {
			if k > 7 || err != nil {
				continue
			}
			key := strconv.Itoa(k)
			var n int
			if err = tx.QueryRow(ctx, "update turns set n = n + 1 where key = $1 returning n", key).Scan(&n); err != nil {
				break
			}
			got[key] = n
			_, err = tx.Exec(ctx, "insert into shop (key, payload) values ($1, $2)", key, key+"."+strconv.Itoa(n)+"."+strconv.Itoa(writer))
			if rng.IntN(3) == 0 {
				pause(rng, 30)
			}
		}
		if err == nil && rng.IntN(8) == 0 {
			_ = tx.Rollback(ctx)
			continue
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil {
			w.Error(err)
			return
		}
		w.mu.Lock()
		for key, n := range got {
			w.committed[key] = max(w.committed[key], n)
		}
		w.mu.Unlock()
	}
}

func pause(rng *rand.Rand, ms int) { time.Sleep(time.Duration(rng.IntN(ms*1000)) * time.Microsecond) }

// watch makes sure that every settled row has arrived before.
func (w *world) watch(ctx context.Context) {
	if w.config.Delivered == adopt.Delete {
		return
	}
	conn, err := pgx.Connect(ctx, w.URL)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for ctx.Err() == nil {
		rows, err := conn.Query(ctx, "select payload from shop where processed_at is not null")
		if err != nil {
			return
		}
		settled, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return
		}
		arrived := map[string]bool{}
		for _, m := range w.sink.all() {
			arrived[string(m.Payload)] = true
		}
		for _, p := range settled {
			if !arrived[p] {
				w.stray.Store(true)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// cut ends connections of the relays.
func (w *world) cut(ctx context.Context, rng *rand.Rand) {
	conn, err := pgx.Connect(ctx, w.URL)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+rng.IntN(300)) * time.Millisecond):
			_, _ = conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and application_name = 'penstock' order by random() limit $1`, 1+rng.IntN(3))
		}
	}
}

func (w *world) check(inOrder bool) {
	if w.stray.Load() {
		w.Error("a row was settled before it had arrived")
	}
	next, seen := map[string]int{}, map[string]bool{}
	for _, m := range w.sink.all() {
		p := string(m.Payload)
		if seen[p] {
			continue
		}
		seen[p] = true
		key, rest, _ := strings.Cut(p, ".")
		text, _, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(text)
		if err != nil || key != m.Key {
			w.Fatalf("a message %q with key %q", p, m.Key)
		}
		if next[key]++; inOrder && n != next[key] {
			w.Errorf("key %s: message %d arrived when it was the turn of %d", key, n, next[key])
			next[key] = n
		}
		if n > w.committed[key] {
			w.Errorf("%q arrived and was never committed", p)
		}
	}
	for key, n := range w.committed {
		if next[key] != n {
			w.Errorf("key %s: %d of %d messages arrived", key, next[key], n)
		}
	}
	if len(w.committed) == 0 {
		w.Error("nothing was committed")
	}
	if n := w.Number("select count(*) from penstock._adopt_row"); n != 0 {
		w.Errorf("%d rows are out of band still", n)
	}
	w.Logf("%d deliveries of %s messages", w.sink.count(), fmt.Sprint(len(seen)))
}

package writer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/writer"
)

// childEnv makes the test binary act as a producer: it is the database to write to.
const childEnv = "PENSTOCK_WRITER_TEST_CHILD"

func TestMain(m *testing.M) {
	if at := os.Getenv(childEnv); at != "" {
		fmt.Fprintln(os.Stderr, produce(context.Background(), at))
		os.Exit(1)
	}
	os.Exit(postgrestest.Run(m))
}

const patience = time.Minute

func open(ctx context.Context, at string) (driver.Store, error) {
	if path, ok := strings.CutPrefix(at, "sqlite:"); ok {
		return sqlite.Open(ctx, path, sqlite.Options{BusyTimeout: patience})
	}
	return postgres.Open(ctx, at, postgres.Options{})
}

// stores runs a test on a database of each kind, with the outbox "orders" that refuses a payload "bad".
func stores(t *testing.T, test func(t *testing.T, at string, store driver.Store)) {
	for name, fresh := range map[string]func(t *testing.T) (at string, refuse func() error){
		"sqlite": func(t *testing.T) (string, func() error) {
			path := sqlitetest.File(t)
			return "sqlite:" + path, func() error {
				db, err := sqlite.OpenDB(path)
				if err != nil {
					return err
				}
				_, err = db.ExecContext(t.Context(), `create trigger refuse before insert on penstock_outbox_orders
					when new.payload = cast('bad' as blob) begin select raise(abort, 'it is bad'); end`)
				return errors.Join(err, db.Close())
			}
		},
		"postgres": func(t *testing.T) (string, func() error) {
			url := postgrestest.Database(t)
			return url, func() error {
				conn, err := pgx.Connect(t.Context(), url)
				if err != nil {
					return err
				}
				_, err = conn.Exec(t.Context(), "alter table penstock.orders add check (payload <> 'bad')")
				return errors.Join(err, conn.Close(t.Context()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, refuse := fresh(t)
			store, err := open(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			if err := errors.Join(store.CreateOutbox(t.Context(), "orders"), refuse()); err != nil {
				t.Fatal(err)
			}
			test(t, at, store)
		})
	}
}

// delivered counts the messages that a subscription gets, by id.
func delivered(t *testing.T, store driver.Store) map[string]int {
	t.Helper()
	src, err := store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close(context.Background()) }()
	got := map[string]int{}
	for {
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: 1000, Bytes: 16 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Messages) == 0 {
			return got
		}
		for _, m := range b.Messages {
			got[m.ID]++
		}
		if err := src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}); err != nil {
			t.Fatal(err)
		}
	}
}

// If the database refuses a message of one among 500 callers, only that caller fails.
func TestWriterOnStores(t *testing.T) {
	stores(t, func(t *testing.T, _ string, store driver.Store) {
		const callers, bad = 500, 123
		w := writer.New(store, writer.Options{Delay: 20 * time.Millisecond})
		errs := make([]error, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				m := penstock.Message{ID: fmt.Sprint(i), Payload: []byte("good")}
				if i == bad {
					m.Payload = []byte("bad")
				}
				errs[i] = w.Publish(t.Context(), "orders", m)
			})
		}
		all.Wait()
		got := delivered(t, store)
		for i, err := range errs {
			if (err != nil) != (i == bad) || got[fmt.Sprint(i)] != 1 != (i == bad) {
				t.Errorf("caller %d: error %v, delivered %d times", i, err, got[fmt.Sprint(i)])
			}
		}
		commits := w.Stats().Commits
		for range 3 { // at the same time, and with no single message at fault
			all.Go(func() {
				if err := w.Publish(t.Context(), "nowhere", penstock.Message{}); !errors.Is(err, penstock.ErrNoOutbox) {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		if n := w.Stats().Commits - commits; n > 3 {
			t.Errorf("%d tries of three calls to an outbox that is not there", n)
		}
	})
}

// Callers share a pooler in transaction mode that has fewer connections than there are targets. Each gets its own answer, and each
// acknowledged message is there once.
func TestWriterThroughAPooler(t *testing.T) {
	t.Parallel()
	direct := postgrestest.Database(t)
	pooler, err := url.Parse(testserver.StartPgBouncer(t, direct, "default_pool_size = 2").URL)
	if err != nil {
		t.Fatal(err)
	}
	through, err := url.Parse(direct + "&default_query_exec_mode=exec") // Debian's version does not support prepared statements
	if err != nil {
		t.Fatal(err)
	}
	through.Host = pooler.Host
	store, err := postgres.Open(t.Context(), direct, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	pooled, err := postgres.Open(t.Context(), through.String(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pooled.Close() }()
	for _, err := range []error{store.Migrate(t.Context()), store.CreateOutbox(t.Context(), "orders"), store.CreateQueue(t.Context(), "jobs", penstock.FIFO), store.CreateInbox(t.Context(), "imports", 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const callers, rounds = 64, 5
	w, once := writer.New(pooled, writer.Options{}), writer.New(writer.Once(pooled, "imports"), writer.Options{})
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for round := range rounds {
				m := penstock.Message{ID: fmt.Sprint(caller, "-", round), Headers: map[string]string{"a": "b"}}
				again := penstock.Message{ID: fmt.Sprint("once-", caller/2, "-", round)} // as another caller has it
				_, failed := w.Enqueue(t.Context(), "jobs", penstock.NewJob{Payload: []byte(m.ID)})
				if err := errors.Join(failed, w.Publish(t.Context(), "orders", m), once.Publish(t.Context(), "orders", again)); err != nil {
					t.Error(err)
				}
			}
			if err := w.Publish(t.Context(), "nowhere", penstock.Message{}); !errors.Is(err, penstock.ErrNoOutbox) {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(w.Close(t.Context()), once.Close(t.Context())); err != nil {
		t.Error(err)
	}
	got := delivered(t, store)
	for id, n := range got {
		if n != 1 {
			t.Errorf("message %s was delivered %d times", id, n)
		}
	}
	jobs, err := store.QueueStatus(t.Context())
	if err != nil || len(got) != callers*rounds+callers/2*rounds || jobs[0].Ready != callers*rounds {
		t.Errorf("%d messages, queue %+v, %v", len(got), jobs, err)
	}
}

// If the server crashes in the middle of commits, all acknowledged messages survive, and the other callers get errors.
func TestWriterOnAServerThatCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	store, err := postgres.Open(t.Context(), server.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := errors.Join(store.Migrate(t.Context()), store.CreateOutbox(t.Context(), "orders")); err != nil {
		t.Fatal(err)
	}
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	random := testseed.New(t.Name(), 0)
	w := writer.New(store, writer.Options{})
	var (
		answered = map[string]bool{}
		refused  atomic.Int64
		mu       sync.Mutex
		all      sync.WaitGroup
		up       sync.RWMutex // held while the server is down
		calls    = make(chan struct{}, 1)
		failed   = make(chan struct{}, 1)
		stop     = make(chan struct{})
	)
	for caller := range 32 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", caller, n)
				err := w.Publish(t.Context(), "orders", penstock.Message{ID: id})
				mu.Lock()
				answered[id] = err == nil
				mu.Unlock()
				tell(calls)
				if err != nil {
					tell(failed)
					up.RLock()
					refused.Add(1)
					up.RUnlock()
				}
			}
		})
	}
	for range 3 {
		for range 100 + random.IntN(3000) { // of calls, at least
			<-calls
		}
		up.Lock()
		select {
		case <-failed: // when it started last
		default:
		}
		err := server.Kill()
		<-failed
		if err := errors.Join(err, server.Start()); err != nil {
			t.Fatal(err)
		}
		up.Unlock()
	}
	close(stop)
	all.Wait()
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	got := delivered(t, store)
	for id, n := range got {
		if n != 1 {
			t.Errorf("message %s was delivered %d times", id, n)
		}
	}
	for id, ok := range answered {
		if ok && got[id] == 0 {
			t.Errorf("message %s was acknowledged and is not there", id)
		}
	}
	t.Logf("%d calls, %d failed, %d delivered", len(answered), refused.Load(), len(got))
}

// tell notes that something has happened since the last check.
func tell(heard chan struct{}) {
	select {
	case heard <- struct{}{}:
	default:
	}
}

// Messages acknowledged before kill -9 are delivered.
func TestWriterKeepsWhatItAcknowledged(t *testing.T) {
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	stores(t, func(t *testing.T, at string, store driver.Store) {
		random := testseed.New(t.Name(), 0)
		acknowledged := map[string]bool{}
		for range testseed.Steps(8) {
			for _, id := range killed(t, at, 1+random.IntN(2000)) {
				acknowledged[id] = true
			}
		}
		got := delivered(t, store)
		for id := range acknowledged {
			if got[id] != 1 {
				t.Errorf("message %s was acknowledged, and delivered %d times", id, got[id])
			}
		}
		t.Logf("%d acknowledged, %d delivered", len(acknowledged), len(got))
	})
}

// killed is the output of a producer that was killed after a number of lines.
func killed(t *testing.T, at string, lines int) (ids []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+at)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for said := bufio.NewScanner(out); said.Scan(); {
		id, whole := strings.CutSuffix(said.Text(), ".") // the last line may be cut off
		if whole {
			ids = append(ids, id)
		}
		if len(ids) == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(ids) < lines {
		t.Fatalf("the producer ended by itself after %d messages", len(ids))
	}
	return ids
}

// produce has 64 callers publish until the process is killed. It shows which messages were acknowledged.
func produce(ctx context.Context, at string) error {
	store, err := open(ctx, at)
	if err != nil {
		return err
	}
	w := writer.New(store, writer.Options{Rows: 40})
	failed := make(chan error)
	for caller := range 64 {
		go func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), caller, n)
				if err := w.Publish(ctx, "orders", penstock.Message{ID: id, Key: fmt.Sprint(caller)}); err != nil {
					failed <- err
					return
				}
				if _, err := fmt.Println(id + "."); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

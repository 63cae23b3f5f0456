package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// A dump is taken with pg_dump, in each of its formats, while producers write, relays and workers
// run and rings rotate. It is restored into a cluster with lower xids. There the relay, a new
// subscription, a replay and the workers handle everything that is committed in the dump's
// snapshot, in order per key. All databases continue to publish to one stream that drops known
// ids: no two messages have the same id.
func TestLiveDump(t *testing.T) {
	testseed.Soak(t)
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	source := testserver.StartPostgres(t)
	execSQL(t, source.URL, "create procedure burn() language plpgsql as $$ begin for i in 1 .. 20000 loop perform pg_current_xact_id(); commit; end loop; end $$")
	execSQL(t, source.URL, "call burn()")
	must(t, "migrate", "--database-url", source.URL)
	must(t, "outbox", "create", "orders", "--retain-age", "1h", "--database-url", source.URL)
	shop := &business{t: t, name: "source", url: source.URL, ledger: newLedger(t, source.URL, "orders"), stream: deduplicatingStream(t), refuses: "key 3"}
	execSQL(t, source.URL, `select penstock.create_queue('jobs'); create table done (n bigserial, entry text primary key, key text, job bigint);
		update penstock._outbox set segment_bytes = 65536; update penstock._queue set segment_bytes = 65536`)
	shop.insert = `with message as (` + shop.insert + `) select penstock.enqueue('jobs', $2, dedup_key => $2,
		key => case when hashtext($2) % 2 = 0 then $1 end, not_before => case when hashtext($2) % 5 = 0 then now() + interval '1 s' end)`

	shop.open()
	turning, still := context.WithCancel(context.WithoutCancel(t.Context()))
	var turned sync.WaitGroup
	turns := map[string]int{}
	turned.Go(func() { shop.turnRings(turning, turns) })
	defer turned.Wait()
	defer still()
	producing, enough := context.WithCancel(context.WithoutCancel(t.Context()))
	var produced sync.WaitGroup
	for i := range 3 {
		produced.Go(func() { shop.produce(producing, fmt.Sprint("live ", i), testseed.New(t.Name(), i), 1<<30) })
	}
	defer produced.Wait()
	defer enough()

	random := testseed.New(t.Name(), -1)
	paths, told := map[string]string{}, map[string][]receipt{}
	formats := []string{"custom", "directory", "plain"}
	for _, format := range formats {
		shop.writes(200 + random.Int64N(300))
		paths[format] = filepath.Join(t.TempDir(), "dump")
		args := []string{"--format", format, "--file", paths[format], "--dbname", source.URL}
		if format == "directory" {
			args = append(args, "--jobs", "2")
		}
		program(t, source, "pg_dump", args...)
		told[format] = shop.heard("source hook")
	}
	shop.writes(100)
	enough()
	produced.Wait()
	still()
	turned.Wait()
	turns["jobs"] = count(t, source.URL, `select pg_sequence_last_value('penstock."_jobs.ring"') / 1024`)
	t.Logf("turns: %v", turns)
	for _, ring := range []string{"_lease", "_scheduled", "_dedup", "jobs"} {
		if turns[ring] == 0 {
			t.Errorf("%s has not turned", ring)
		}
	}

	fresh := testserver.StartPostgres(t)
	shops := []*business{shop}
	for _, format := range formats {
		name := "copy_" + format
		execSQL(t, fresh.URL, "create database "+name)
		url := strings.Replace(fresh.URL, "/postgres?", "/"+name+"?", 1)
		if format == "plain" {
			program(t, fresh, "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", paths[format], "--dbname", url)
		} else {
			program(t, fresh, "pg_restore", "--exit-on-error", "--dbname", url, paths[format])
		}
		shops = append(shops, &business{t: t, name: name, url: url, ledger: shop.ledger, stream: shop.stream})
		shop.arrivals[name+" hook"] = told[format]
	}
	for _, c := range shops[1:] {
		c.open()
		c.produce(t.Context(), c.name, testseed.New(t.Name()+c.name, 0), 100)
	}
	entries := map[string]bool{} // of all databases
	for _, s := range shops {
		s.settle()
		maps.Copy(entries, entriesOf(t, s.url))
	}
	shop.stream.read(t, shop.ledger, "stream")
	for _, s := range shops {
		t.Logf("%s:", s.name)
		s.mustBeSound(s.url, "stream", entries)
		s.anew.read(t, s.ledger, s.name+" anew")
		s.mustBeSound(s.url, s.name+" anew", nil)
		if s != shop {
			s.mustBeSound(s.url, s.name+" hook", entries)
			s.replay()
		}
	}
}

// business is a database with the tables of the ledger, a relay, and workers that record their
// work within the transaction that ends the job.
type business struct {
	*ledger      // of all
	t            *testing.T
	name, url    string
	stream, anew *natsStream
	refuses      string // the key whose messages the endpoint refuses
	relay        *process
	written      atomic.Int64
}

// open starts the relay and the workers.
func (b *business) open() {
	b.t.Helper()
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		key := r.Header.Get("Penstock-Key")
		if err != nil || key == b.refuses {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		b.got(b.name+" hook", receipt{id: r.Header.Get("Idempotency-Key"), key: key, entry: string(body)})
	}))
	b.t.Cleanup(hook.Close)
	b.anew = deduplicatingStream(b.t)
	config := filepath.Join(b.t.TempDir(), "penstock.yaml")
	content := fmt.Sprintf(`
database_url: %q
relay: {lease: %s, retry_max: 1s, max_attempts: unlimited}
subscriptions:
  - {name: stream, outbox: orders, sink: {nats: {url: %q, subject: orders}}}
  - {name: hook, outbox: orders, sink: {webhook: {url: %q, allow_addresses: [127.0.0.1]}}}
  - {name: %s anew, outbox: orders, sink: {nats: {url: %q, subject: orders}}}
`, b.url, shortLease, b.stream.url, hook.URL, b.name, b.anew.url)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.relay = start(b.t, "relay", "--config", config)

	store, err := postgres.Open(b.t.Context(), b.url, postgres.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- postgres.WorkTx(ctx, store, "jobs", func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
			if len(job.Payload)%7 == 0 && job.Attempt == 1 {
				return penstock.RetryAfter(errors.New("not yet"), 300*time.Millisecond)
			}
			_, err := tx.Exec(ctx, "insert into done (entry, key, job) values ($1, nullif($2, ''), $3)", string(job.Payload), job.Key, job.ID)
			if pgerror.State(err) == "23505" {
				b.t.Errorf("%s: the job of %s is done and came again", b.name, job.Payload)
			}
			return err
		}, work.Options{Concurrency: 4, Lease: shortLease, Logger: slog.New(slog.DiscardHandler)})
	}()
	b.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, store.Close()); err != nil && !errors.Is(err, context.Canceled) {
			b.t.Errorf("%s: the workers ended: %v", b.name, err)
		}
	})
}

// produce commits up to n entries of ten keys.
func (b *business) produce(ctx context.Context, name string, random *rand.Rand, n int) {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		b.t.Error(err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i := 0; i < n && ctx.Err() == nil; i++ {
		// Transactions that have begun are ended.
		if err := b.one(context.WithoutCancel(ctx), conn, fmt.Sprintf("%s-%d", name, i), fmt.Sprint("key ", random.IntN(10))); err != nil {
			b.t.Errorf("writing an entry: %v", err)
			return
		}
		b.written.Add(1)
	}
}

// writes waits for the producers.
func (b *business) writes(more int64) {
	b.t.Helper()
	until := b.written.Load() + more
	eventually(b.t, "more is written", func() bool { return b.written.Load() >= until })
}

// turnRings rotates the rings of relays' and workers' state all the time, as a load that fills them
// quickly would, and counts rotations of the workers' rings.
func (b *business) turnRings(ctx context.Context, turns map[string]int) {
	conn, err := pgx.Connect(context.WithoutCancel(ctx), b.url)
	if err != nil {
		b.t.Error(err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		for _, sql := range []string{"_reclaim_cursor()", "_reclaim_parked_keys(1)", "_reclaim_parked(1)", "_maintain_ring('jobs')"} {
			if _, err := conn.Exec(context.WithoutCancel(ctx), "select penstock."+sql); err != nil {
				b.t.Errorf("%s: %v", sql, err)
				return
			}
		}
		for ring, alive := range map[string]string{"_lease": "true", "_scheduled": "true", "_dedup": "r.at > clock_timestamp() - (select q.dedup_window from penstock._queue q where q.id = r.queue)"} {
			var turned bool
			if err := conn.QueryRow(context.WithoutCancel(ctx), "select penstock._reclaim_pair($1, 16384, $2)", ring, alive).Scan(&turned); err != nil {
				b.t.Errorf("%s: %v", ring, err)
				return
			}
			if turned {
				turns[ring]++
			}
		}
	}
}

// heard has the deliveries to a consumer so far.
func (l *ledger) heard(consumer string) []receipt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.arrivals[consumer])
}

// settle waits until nothing is left to relay or to do.
func (b *business) settle() {
	b.t.Helper()
	for _, s := range []string{"stream", b.name + " anew"} {
		eventually(b.t, b.name+" has relayed to "+s, func() bool {
			sub, _ := subscriptionOf(b.t, b.url, "orders", s)
			return sub.Holder != "" && sub.Backlog == 0
		})
	}
	all := entriesOf(b.t, b.url)
	eventually(b.t, b.name+" has done all jobs", func() bool {
		return count(b.t, b.url, "select count(*) from done") == len(all)
	})
	// A job that is only delayed has no place in its key before it is due.
	if early := texts(b.t, b.url, `select entry from (select entry, job < max(job) over (partition by key order by n) as early
		from done where key is not null and hashtext(entry) % 5 <> 0) d where early`); len(early) > 0 {
		b.t.Errorf("%s: the jobs of %q were done after later ones of their keys", b.name, early)
	}
	if b.refuses == "" {
		eventually(b.t, b.name+" has told the endpoint everything", func() bool {
			heard := map[string]bool{}
			for _, r := range b.heard(b.name + " hook") {
				if all[r.entry] {
					heard[r.entry] = true
				}
			}
			return len(heard) == len(all)
		})
	}
}

// replay makes the new subscription deliver everything again.
func (b *business) replay() {
	b.t.Helper()
	b.relay.signal(syscall.SIGTERM)
	b.relay.wait()
	subscription := b.name + " anew"
	must(b.t, "replay", "orders", "--subscription", subscription, "--from", "beginning", "--yes", "--database-url", b.url)
	relay := start(b.t, "relay", "--outbox", "orders", "--subscription", subscription, "--sink", "stdout", "--database-url", b.url)
	relay.await("all messages again", func() bool { return strings.Count(relay.stdout.String(), "\n") >= len(entriesOf(b.t, b.url)) })
	for line := range strings.Lines(relay.stdout.String()) {
		var m struct{ ID, Key, Payload string }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			b.t.Errorf("%s: %v", line, err)
		}
		b.got(b.name+" replayed", receipt{id: m.ID, key: m.Key, entry: m.Payload})
	}
	relay.signal(syscall.SIGTERM)
	relay.wait()
	b.mustBeSound(b.url, b.name+" replayed", nil)
}

// program runs one of PostgreSQL's programs.
func program(t testing.TB, server *testserver.Postgres, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), filepath.Join(server.Bin, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// count is a number that a query returns.
func count(t testing.TB, database, sql string) (n int) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

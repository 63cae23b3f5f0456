package postgres_test

import (
	"compress/gzip"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// TestWriteSchemaDump writes testdata/schema_N.sql.gz, which every later version is to bring up to date: make
// schema-dump. Without the variable it only checks that it can.
func TestWriteSchemaDump(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, testserver.Database(t, server.URL), postgres.Options{Segments: 2})
	fillForUpgrade(f)
	dump := plainDump(f, server)
	for _, part := range []string{"parked 1", "dead 1", "unsettled 20"} {
		if !strings.Contains(dump, fmt.Sprintf("%x", part)) {
			t.Errorf("%q is not in the dump", part)
		}
	}
	dir := os.Getenv("PENSTOCK_SCHEMA_DUMP")
	if dir == "" || t.Failed() {
		return
	}
	version, err := f.store.SchemaVersion(f.Ctx)
	f.Must(err)
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("schema_%d.sql.gz", version)))
	f.Must(err)
	zip, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	f.Must(err)
	_, err = zip.Write([]byte(dump))
	f.Must(err)
	f.Must(zip.Close())
	f.Must(file.Close())
}

// pgDump is the server's program of that name; the test is skipped where it came without.
func pgDump(tb testing.TB, server *testserver.Postgres) string {
	tb.Helper()
	program := filepath.Join(server.Bin, "pg_dump")
	if _, err := os.Stat(program); err != nil {
		tb.Skip("the server came without pg_dump")
	}
	return program
}

// plainDump is the database as SQL.
func plainDump(f *fixture, server *testserver.Postgres) string {
	f.Helper()
	var stderr strings.Builder
	cmd := osexec.CommandContext(f.Ctx, pgDump(f, server), "--inserts", "--rows-per-insert=100", "--no-owner", f.URL)
	cmd.Stderr = &stderr
	dump, err := cmd.Output()
	if err != nil {
		f.Fatalf("%v: %s", err, stderr.String())
	}
	return regexp.MustCompile(`(?m)^(?:\\(?:un)?restrict|SET transaction_timeout) .*$`).ReplaceAllString(string(dump), "") // for psql, and for newer servers
}

// fillForUpgrade makes some of all that there can be, which TestUpgrade must find again. Each time is
// one that a dump of many years ago has not come to, or one that is over already.
func fillForUpgrade(f *fixture) {
	f.Helper()
	f.Exec("select penstock.set_retention('orders', '900 years', null)")
	src := f.subscribe()
	publish := func(what string, n int, key string) {
		f.Exec("select penstock.publish('orders', $1 || ' ' || i, key => $3, topic => 't', headers => jsonb_build_object('h', $1::text)) from generate_series(1, $2::int) i", what, n, key)
	}
	publish("settled", 20, "k")
	f.drain(src)
	publish("dead", 5, "d")
	f.settleAll(src, driver.Verdict{Outcome: driver.Dead, Failures: refusedOnce("no")}, f.fetchSome(src))
	publish("held", 1, "h")
	f.settleAll(src, driver.Verdict{Outcome: driver.Dead, Failures: refusedOnce("no"), Hold: true}, f.fetchSome(src))
	_, err := f.store.Replay(f.Ctx, admin.Replay{Outbox: "orders", Subscription: "sub", FromSeq: 11, ToSeq: 20})
	f.Must(err)
	b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 5, Bytes: 1 << 20})
	f.Must(err)
	f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b})) // a part of the replay
	publish("behind", 2, "h")
	publish("parked", 5, "p")
	publish("given-up", 1, "g")
	for parked := 0; parked < 8; {
		b := f.fetchSome(src)
		verdicts := make([]driver.Verdict, len(b.Messages))
		for i, m := range b.Messages {
			switch what, _, _ := strings.Cut(string(m.Payload), " "); what {
			case "parked":
				parked++
				verdicts[i] = driver.Verdict{Outcome: driver.Parked, Failures: refusedOnce("not now"), RetryIn: time.Millisecond}
			case "given-up":
				parked++
				verdicts[i] = driver.Verdict{Outcome: driver.Parked, RetryIn: 100 * 365 * 24 * time.Hour}
			case "behind":
				parked++
				verdicts[i] = driver.Verdict{Outcome: driver.Parked}
			}
		}
		f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
	}
	f.Must(src.Close(f.Ctx))
	keys, err := f.store.ParkedKeys(f.Ctx, "orders", "sub", 100)
	f.Must(err)
	for _, k := range keys {
		if k.Key == "g" {
			_, err = f.store.GiveUpParked(f.Ctx, "orders", "sub", k.FirstSeq, "wrong address")
		}
	}
	f.Must(err)
	_, err = f.store.Replay(f.Ctx, admin.Replay{Outbox: "orders", Subscription: "sub", FromSeq: 1, ToSeq: 10})
	f.Must(err)
	publish("unsettled", 20, "k")

	f.Exec("select penstock.create_queue('q', 'fifo', 4, 65536), penstock.create_queue('stack', 'lifo', 4, 65536)")
	f.Exec("select penstock.set_queue(name, max_attempts => 5, dedup_window => '900 years') from unnest('{q,stack}'::text[]) name")
	for _, queue := range []string{"q", "stack"} {
		f.Exec("select penstock.enqueue($1, 'left ' || i, key => (array['a', 'b', null])[i % 3 + 1], group_key => (array['', 'g'])[i % 2 + 1], priority => i % 3 - 1) from generate_series(1, 30) i", queue)
		f.Exec("select penstock.claim($1, 8, lease => '900 years', worker => 'w')", queue)
		f.Exec("select penstock.retry($1, l.lease, '900 years', 'failed') from (select l.lease from penstock._lease l join penstock._queue q on q.id = l.queue where q.name = $1 order by l.lease limit 2) l", queue)
		f.Exec("select penstock.dead_letter($1, l.lease, 'buried') from (select l.lease from penstock._lease l join penstock._queue q on q.id = l.queue where q.name = $1 order by l.lease limit 2) l", queue)
		f.Exec("select penstock.enqueue($1, 'delayed ' || i, not_before => now() + interval '900 years') from generate_series(1, 3) i", queue)
		f.Exec("select penstock.enqueue($1, 'once', dedup_key => 'once')", queue)
	}
	f.Exec("select penstock.enqueue('stack', 'filling ' || repeat('x', 2000)) from generate_series(1, 60)")
	f.Exec("select penstock._maintain_ring('stack')")
	f.Exec("select penstock.enqueue('stack', 'top ' || i) from generate_series(1, 5) i")
	f.Exec("select penstock.create_queue('lines', 'fifo', 4, 65536)")
	f.Exec("select penstock.enqueue('lines', 'held', holds => b), penstock.enqueue('lines', 'waits', waits_for => array[b]), penstock.publish_after('lines', array[b], 'orders', 'shipped'), penstock.seal('lines', b) from penstock.barrier('lines') b")
	f.Exec("select penstock.schedule('stack', 'yearly', '@yearly', 'scheduled')")
	f.Exec("select penstock.schedule('stack', 'paused', '@yearly', 'paused', skip_overlap => true)")
	f.Exec("select penstock.pause_schedule('stack', 'paused')")

	f.Exec("select penstock.create_inbox('billing', '10 years')")
	f.Exec("select penstock.inbox('billing', 'seen ' || i) from generate_series(1, 5) i")
	f.Exec("select penstock.inbox_in_order('billing', 'k', 'm1', null, null, 'first')")
	f.Exec("select penstock.inbox_in_order('billing', 'k', 'm3', 'm2', null, 'third', wait => '4 years')")
}

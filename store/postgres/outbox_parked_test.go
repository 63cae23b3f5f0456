package postgres_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
)

// refuse settles a batch with its first message of each key parked for in, and the
// others behind.
func (f *fixture) refuse(src driver.Source, b driver.Batch, in time.Duration) {
	f.Helper()
	verdicts := make([]driver.Verdict, len(b.Messages))
	seen := map[string]bool{}
	for i, m := range b.Messages {
		verdicts[i] = driver.Verdict{Outcome: driver.Parked, RetryIn: in}
		if !seen[m.Key] && (b.KeyOrder == nil || b.KeyOrder[i] == driver.InOrder) {
			verdicts[i].Failures = []penstock.Failure{{Attempt: m.Attempt, At: time.Now(), Err: "refused"}}
		}
		seen[m.Key] = true
	}
	f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
}

// fetchSome fetches until a batch has messages.
func (f *fixture) fetchSome(src driver.Source) (b driver.Batch) {
	f.Helper()
	f.Eventually("there are messages", func() bool {
		var err error
		b, err = src.Fetch(f.Ctx, plenty)
		f.Must(err)
		return len(b.Messages) > 0
	})
	return b
}

func (f *fixture) parkedBytes() int64 {
	f.Helper()
	return f.Number(`select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits
		where inhparent in ('penstock._parked'::regclass, 'penstock._parked_key'::regclass)`)
}

// Parking, trying again and delivering leave no dead row, and the ring gives its space
// back, all while a snapshot is pinned.
func TestParkedRingIsFlat(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	floor := f.parkedBytes()
	defer pin(t, f.URL)()
	src := f.subscribe()
	const keys, rounds, retries = 50, 5, 6
	for round := range rounds {
		f.Exec("insert into penstock.orders (key, payload) select 'k' || (i % $1), convert_to(i || repeat('x', 200), 'UTF8') from generate_series(1, 500) i", keys)
		for range retries {
			f.refuse(src, f.fetchSome(src), time.Microsecond)
			f.Must(f.store.Maintain(f.Ctx, "orders"))
		}
		got := map[string]int{}
		for len(got) < keys || sum(got) < 500 {
			b := f.fetchSome(src)
			for _, m := range b.Messages {
				got[m.Key]++
			}
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
			f.Must(f.store.Maintain(f.Ctx, "orders"))
		}
		if sum(got) != 500 {
			t.Fatalf("round %d: got %d messages, want 500", round, sum(got))
		}
	}
	f.wantDrain(src)
	f.Eventually("the ring is as small as at first", func() bool {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		return f.parkedBytes() <= floor
	})
	const stats = ` from pg_stat_user_tables where schemaname = 'penstock' and relname like '\_parked%'`
	f.Eventually("the statistics are complete", func() bool {
		return f.Number("select coalesce(sum(n_tup_ins), 0)"+stats) >= 500*rounds
	})
	if n := f.Number("select sum(n_tup_upd + n_tup_del)" + stats); n != 0 {
		t.Errorf("%d rows were updated or deleted", n)
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// What stays parked outlives the ring's turns, and costs no more than itself.
func TestParkedRingKeepsWhatIsParked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	f.insert(f.Conn, "stuck", "first")
	f.insert(f.Conn, "stuck", "second")
	f.refuse(src, f.fetchSome(src), time.Hour)
	for range 30 {
		f.Exec("insert into penstock.orders (key, payload) select 'k' || i, convert_to(i || repeat('x', 200), 'UTF8') from generate_series(1, 100) i")
		f.refuse(src, f.fetchSome(src), time.Microsecond)
		for n := 0; n < 100; {
			b := f.fetchSome(src)
			n += len(b.Messages)
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		}
		f.Must(f.store.Maintain(f.Ctx, "orders"))
	}
	if n := f.Number("select count(distinct slot) from (select slot from penstock._parked union all select slot + 10 from penstock._parked_key) s"); n == 0 {
		t.Error("nothing is parked any more")
	}
	keys, err := f.store.ParkedKeys(f.Ctx, "orders", "sub", 10)
	f.Must(err)
	if len(keys) != 1 || keys[0].Key != "stuck" || keys[0].Messages != 2 || keys[0].Err != "refused" {
		t.Errorf("parked keys: %+v", keys)
	}
	f.Eventually("the ring is small", func() bool {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		return f.Number("select count(*) from penstock._parked") == 2 && f.Number("select count(*) from penstock._parked_key") == 1
	})
	f.insert(f.Conn, "stuck", "third")
	b := f.fetchSome(src)
	if b.KeyOrder == nil || b.KeyOrder[0] != driver.BehindParked {
		t.Errorf("the third message of the key is not BehindParked: %v", b.KeyOrder)
	}
}

// With more keys than a source keeps in memory it asks for each batch.
func TestMoreLinesThanKnownByHeart(t *testing.T) {
	defer postgres.SetMaxKeys(20)()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.Exec("insert into penstock.orders (key, payload) select 'k' || i, 'first' from generate_series(1, 60) i")
	f.refuse(src, f.fetchSome(src), time.Hour)
	for range 2 {
		f.Exec("insert into penstock.orders (key, payload) select 'k' || i, 'more' from generate_series(41, 80) i")
		b := f.fetchSome(src)
		behind := 0
		for i, m := range b.Messages {
			if isBehind := b.KeyOrder != nil && b.KeyOrder[i] == driver.BehindParked; isBehind != (len(m.Key) == 3 && m.Key <= "k60") {
				t.Errorf("key %s: behind is %v", m.Key, isBehind)
			} else if isBehind {
				behind++
			}
		}
		if behind != 20 {
			t.Errorf("%d messages are behind, want 20", behind)
		}
		verdicts := make([]driver.Verdict, len(b.Messages))
		for i := range verdicts {
			if b.KeyOrder != nil && b.KeyOrder[i] == driver.BehindParked {
				verdicts[i].Outcome = driver.Parked
			}
		}
		f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
		f.Must(src.Close(f.Ctx))
		src = f.subscribe()
	}
}

// Plans of the statements that read messages outside the stream.
func TestPlansOfTheParkedRing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	check := func(when string) {
		t.Helper()
		conn := f.Connect()
		_, err := conn.Exec(f.Ctx, postgres.Settings)
		f.Must(err)
		_, err = conn.Exec(f.Ctx, "prepare due as "+postgres.Statement("due", "penstock", "orders"))
		f.Must(err)
		rows, err := conn.Query(f.Ctx, "explain execute due(1, '-infinity', 0, 100, 10)")
		f.Must(err)
		var plan strings.Builder
		for rows.Next() {
			var line string
			f.Must(rows.Scan(&line))
			plan.WriteString(line + "\n")
		}
		f.Must(rows.Err())
		for _, bad := range []string{"Seq Scan", "Bitmap", "Sort\n", "Hash"} {
			if strings.Contains(plan.String(), bad) {
				t.Errorf("%s: %s in\n%s", when, bad, plan.String())
			}
		}
		for _, want := range []string{`Index Cond: \(\(subscription = .*ROW\(due, n\) >.*due <= statement_timestamp`, `Index Cond: \(\(subscription = .* AND \(parked_key = c.*\) AND \(n >`, `Index Cond: \(\(subscription = .* AND \(parked_key = c.*\) AND \(p >=`} {
			if !regexp.MustCompile(want).MatchString(plan.String()) {
				t.Errorf("%s: no %q in\n%s", when, want, plan.String())
			}
		}
	}
	check("never analyzed")
	f.Exec("analyze")
	check("analyzed when empty")
	f.Exec("insert into penstock.orders (key, payload) select 'k' || (i % 900), 'x' from generate_series(1, 1000) i")
	f.refuse(src, f.fetchSome(src), time.Hour)
	check("filled since")
	f.Exec("analyze")
	check("analyzed when full")
}

// Statements that go over all parked keys find the last state of each by an index, not among those of all keys. With 10,000
// keys the latter takes longer than a fetch may last, and the subscription would stand still.
func TestManyParkedKeysAreGoneOverOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	const keys = 2000
	f.Exec("insert into penstock.orders (key, payload) select 'k' || i, 'x' from generate_series(1, $1::int) i", keys)
	src := f.subscribe()
	for parked := 0; parked < keys; {
		b := f.fetchSome(src)
		f.refuse(src, b, time.Hour)
		parked += len(b.Messages)
	}
	for session, settings := range map[string]string{"a relay": postgres.Settings, "an operator": "set jit = off"} {
		steps := stepsOn(f)
		steps(settings)
		for name, args := range map[string][]any{
			"parked_set": {1, 2 * keys}, "released": {1, 2 * keys}, "retried": {1, []string{""}, []int64{1 << 40}, 2 * keys},
			"parked_keys": {1, 2 * keys}, "parked_status": {1, nil}, "others": {1, 0, 0},
		} {
			if n := steps(postgres.Statement(name, "penstock", "orders"), args...); n > 100*keys {
				t.Errorf("%s, %s: %.0f rows for %d keys", session, name, n, keys)
			}
		}
	}
}

// A settling write of a session that was lost may still be under way on the server when the source
// begins the next one. The source waits, and knows which messages are parked.
func TestLateWriteOfALostSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "first")
	b := f.fetchSome(src)
	// Keeps the insert into _parked_key waiting, as a slow disk would the commit.
	blocker := f.Connect()
	tx, err := blocker.Begin(f.Ctx)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "lock table penstock._parked in share mode")
	f.Must(err)
	settled := make(chan error, 1)
	go func() {
		settled <- storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{
			Outcome: driver.Parked, RetryIn: time.Hour, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}}}})
	}()
	f.Eventually("the write waits", func() bool {
		return f.Number("select count(*) from pg_locks where not granted and relation = 'penstock._parked'::regclass") > 0
	})
	postgres.LoseSession(src)
	if err := <-settled; err == nil {
		t.Fatal("the write was answered")
	}
	f.Must(tx.Rollback(f.Ctx))
	var again driver.Batch
	f.Eventually("the source reads on", func() bool {
		f.insert(f.Conn, "k", "later")
		var err error
		again, err = src.Fetch(f.Ctx, plenty)
		return err == nil && len(again.Messages) > 0
	})
	for i, m := range again.Messages {
		if behind := again.KeyOrder != nil && again.KeyOrder[i] == driver.BehindParked; string(m.Payload) == "later" && f.Number("select count(*) from penstock._parked") == 1 && !behind {
			t.Error("first is parked, but what came later is not BehindParked")
		}
	}
}

// An order about a message that is being tried waits for the end of that attempt. A delivered message is not given up.
func TestGivenUpWhileItIsTried(t *testing.T) {
	t.Parallel()
	for _, ends := range []driver.Outcome{driver.Delivered, driver.Parked} {
		f := newFixture(t, postgres.Options{})
		src := f.subscribe()
		f.insert(f.Conn, "k", "first")
		f.insert(f.Conn, "k", "second")
		f.refuse(src, f.fetchSome(src), time.Hour)
		keys, err := f.store.ParkedKeys(f.Ctx, "orders", "sub", 1)
		f.Must(err)
		if n, err := f.store.GiveUpParked(f.Ctx, "orders", "sub", keys[0].FirstSeq, "wrong address"); err != nil || n != 1 {
			t.Fatalf("GiveUpParked: %d, %v", n, err)
		}
		f.Exec("update penstock._parked_key set due = clock_timestamp()") // it became due in the meantime
		f.Must(src.Close(f.Ctx))
		src = f.subscribe() // its first Fetch reads the order
		b := f.fetchSome(src)
		if len(b.Messages) != 1 || b.GivenUp != nil {
			t.Fatalf("%d messages came, given up %v, want one that is tried", len(b.Messages), b.GivenUp)
		}
		if ends == driver.Parked {
			f.refuse(src, b, time.Hour)
			b = f.fetchSome(src)
			if string(b.Messages[0].Payload) != "first" || b.GivenUp[0] != "wrong address" {
				t.Fatalf("%s came, given up %v, want the first with its reason", b.Messages[0].Payload, b.GivenUp)
			}
			f.settleAll(src, driver.Verdict{Outcome: driver.Dead, Failures: []penstock.Failure{{At: time.Now(), Err: b.GivenUp[0]}}}, b)
		} else {
			f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b}))
		}
		b = f.fetchSome(src)
		if len(b.Messages) != 1 || string(b.Messages[0].Payload) != "second" || b.GivenUp != nil {
			t.Fatalf("then %d messages came, the first %s, given up %v", len(b.Messages), b.Messages[0].Payload, b.GivenUp)
		}
		f.Eventually("the order is forgotten", func() bool {
			f.wantDrain(src)
			return f.Number("select count(*) from penstock._retry") == 0
		})
		f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b}))
		if n := f.Number("select count(*) from penstock._dead_letter"); n != int64(ends)/2 {
			t.Errorf("%d dead letters after outcome %d", n, ends)
		}
	}
}

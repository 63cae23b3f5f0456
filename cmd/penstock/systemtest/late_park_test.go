package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Transactions draw their xid first, publish up to a second later and commit up to a second after that. Meanwhile every
// 25th message is refused three times and its key is parked. Each message is confirmed once, and counted once. A message
// whose transaction saw the commit of another of its key comes after it.
func TestLateCommitsOfParkedKeys(t *testing.T) {
	testseed.Soak(t)
	const messages, keys, connections = 900, 5, 50
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())

	var mu sync.Mutex
	var confirmed []int
	asked := map[int]int{}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.Header.Get("Idempotency-Key"))
		mu.Lock()
		defer mu.Unlock()
		if asked[n]++; err != nil || n%25 == 0 && asked[n] <= 3 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		confirmed = append(confirmed, n)
	}))
	t.Cleanup(hook.Close)

	database := ordersDatabase(t)
	execSQL(t, database, "create table late (n int, key text, xid xid8, seen pg_snapshot)")
	relay := start(t, "relay", "--database-url", database, "--outbox", "orders", "--lease", longLease.String(),
		"--sink", hook.URL+"#allow_addresses=127.0.0.1&timeout=1m&response_timeout=1m&concurrency=16")
	err := suite.Concurrently(connections, func(c int) error {
		random := testseed.New(t.Name(), c)
		conn, err := pgx.Connect(t.Context(), database)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		for n := c; n < messages; n += connections {
			key := fmt.Sprint("key ", random.IntN(keys))
			if _, err := conn.Exec(t.Context(), fmt.Sprintf(`begin; select pg_current_xact_id(); select pg_sleep(%f);
				insert into late values (%d, '%s', pg_current_xact_id(), pg_current_snapshot());
				insert into penstock.orders (id, key, topic, payload) values ('%[2]d', '%[3]s', 't', ''); select pg_sleep(%[4]f); commit`,
				random.Float64(), n, key, random.Float64())); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(100); n <= messages; n += 100 { // a key that is refused several times takes a while
		awaitSubscription(t, database, "orders", "", fmt.Sprint(n, " are settled"), func(s admin.SubscriptionStatus) bool { return s.Settled >= n })
	}
	status := awaitSubscription(t, database, "orders", "", "nothing is left", func(s admin.SubscriptionStatus) bool { return s.Backlog == 0 && s.Parked == 0 })
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		t.Errorf("the relay ended with %d: %s", o.code, o.stderr)
	}
	if status.Settled != messages || status.Epoch != 1 {
		t.Errorf("%d messages are settled in epoch %d, want %d in the first", status.Settled, status.Epoch, messages)
	}

	mu.Lock()
	defer mu.Unlock()
	place := map[int]int{}
	for i, n := range confirmed {
		if _, twice := place[n]; twice {
			t.Errorf("message %d was confirmed again", n)
			continue
		}
		place[n] = i
	}
	if len(place) != messages {
		t.Errorf("%d messages arrived, want %d", len(place), messages)
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), `select a.n, b.n from late a join late b on b.key = a.key and a.n <> b.n and pg_visible_in_snapshot(a.xid, b.seen)`)
	if err != nil {
		t.Fatal(err)
	}
	var first, second, pairs int
	if _, err := pgx.ForEachRow(rows, []any{&first, &second}, func() error {
		if pairs++; place[second] < place[first] {
			t.Errorf("message %d saw the commit of %d and came before it", second, first)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, n := range asked {
		requests += n
	}
	t.Logf("%d requests, %d pairs in order", requests, pairs)
}

package portable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

// cluster is a schema in a Citus that PENSTOCK_TEST_CITUS names by the URL of its coordinator, with an outbox and an application's table.
type cluster struct {
	testing.TB
	url, schema string
	pool        *pgxpool.Pool
	store       *portable.Store
	proxies     []*tcpproxy.Proxy // between the coordinator and the workers
}

func onCitus(t *testing.T) *cluster {
	url := os.Getenv("PENSTOCK_TEST_CITUS")
	if url == "" {
		t.Skip("PENSTOCK_TEST_CITUS names no coordinator")
	}
	return newCluster(t, url)
}

// likeCitus is one PostgreSQL with the names that the store needs of Citus: the statements are those for a distributed outbox, and nothing is distributed.
func likeCitus(t *testing.T) *cluster {
	needsShim(t)
	url := testserver.Database(t, testserver.PostgresURL(t))
	exec(t, url, `create schema shim;
		create view shim.pg_extension as select 'citus' as extname;
		create table shim.pg_dist_partition (logicalrelid regclass, partkey text, partmethod "char");
		create function shim.column_to_column_name(regclass, text) returns text language sql as 'select $2';
		create function shim.create_distributed_table(of text, by text, shard_count int default 32, colocate_with text default '') returns void language sql
			as $$ insert into shim.pg_dist_partition values (of::regclass, by, 'h') $$`)
	return newCluster(t, shimmed(t, url))
}

func newCluster(t *testing.T, url string) *cluster {
	c := &cluster{TB: t, url: url, schema: fmt.Sprintf("distributed_%d", time.Now().UnixNano())}
	c.pool = business(t, url)
	c.store = openStore(t, url, portable.Options{Schema: c.schema, Sweep: time.Second})
	t.Cleanup(func() {
		var err error
		for range 5 { // connections to a worker that was killed fail once each
			if err = c.store.DropSchema(context.Background()); err == nil {
				return
			}
		}
		t.Error(err)
	})
	c.must(c.store.Migrate(t.Context()))
	exec(t, url, "create table "+c.orders()+" (tenant bigint not null, id bigint not null, key text not null, primary key (tenant, id))")
	exec(t, url, "select create_distributed_table('"+c.orders()+"', 'tenant', shard_count => 8)")
	c.must(c.store.CreateDistributedOutbox(t.Context(), "orders", "tenant", c.orders()))
	return c
}

func (c *cluster) orders() string { return c.schema + ".shop_order" }

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) count(sql string) (n int64) {
	c.Helper()
	c.must(c.pool.QueryRow(c.Context(), sql).Scan(&n))
	return n
}

// order writes an order with its message in one transaction: as a program in Go, or as any other with an INSERT.
func (c *cluster) order(ctx context.Context, tenant, id int64, key string) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into "+c.orders()+" values ($1, $2, $3)", tenant, id, key); err != nil {
			return err
		}
		payload := fmt.Sprintf("%d %d", tenant, id)
		if id%2 == 0 {
			return c.store.Outbox("orders").For("tenant", tenant).PublishTx(ctx, tx, penstock.Message{Key: key, Payload: []byte(payload)})
		}
		_, err := tx.Exec(ctx, "insert into "+c.schema+".outbox_orders (tenant, key, payload) values ($1, $2, $3)", tenant, key, []byte(payload))
		return err
	})
}

// produce has each of four producers write this number of orders, of separate tenants. Those that fail are not tried again.
func (c *cluster) produce(orders int) (failed int) {
	c.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	var all sync.WaitGroup
	var mu sync.Mutex
	for p := range int64(4) {
		rnd := testseed.New(c.Name(), int(p))
		all.Go(func() {
			for id := range int64(orders) {
				tenant := p + 4*rnd.Int64N(5)
				if err := c.order(c.Context(), tenant, id, fmt.Sprint("k", rnd.IntN(3))); err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return failed
}

// carried has the messages that relays have delivered.
type carried struct {
	mu          sync.Mutex
	of          map[string][]int64 // ids by tenant and key, the first time each
	seen        map[string]bool
	again, errs int
}

// relays deliver until all orders that are there have been, in two processes that share the subscription.
func (c *cluster) relays(produced <-chan struct{}) *carried {
	got := &carried{of: map[string][]int64{}, seen: map[string]bool{}}
	ctx, stop := context.WithTimeout(c.Context(), 3*time.Minute)
	defer stop()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := c.relay(ctx, got); err != nil && ctx.Err() == nil {
					got.mu.Lock()
					got.errs++
					got.mu.Unlock()
				}
			}
		})
	}
	<-produced
	for ctx.Err() == nil {
		var orders, left int64
		err := c.pool.QueryRow(ctx, "select (select count(*) from "+c.orders()+"), (select count(*) from "+c.schema+".outbox_orders)").Scan(&orders, &left)
		got.mu.Lock()
		done := err == nil && left == 0 && len(got.seen) >= int(orders)
		got.mu.Unlock()
		if done {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	all.Wait()
	return got
}

func (c *cluster) relay(ctx context.Context, got *carried) error {
	src, err := c.store.SubscribeShared(ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test", Lease: 10 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = src.Close(context.WithoutCancel(ctx)) }()
	for attempt := uint64(1); ; attempt++ {
		if err := src.Renew(ctx); err != nil {
			return err
		}
		b, err := src.Fetch(ctx, driver.Limit{Messages: 50, Bytes: 1 << 20})
		if err != nil {
			return err
		}
		if len(b.Messages) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		got.take(b.Messages)
		if err := src.Settle(ctx, attempt, driver.Settled{Batch: b}); err != nil {
			return err
		}
	}
}

func (g *carried) take(msgs []penstock.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range msgs {
		var tenant, id int64
		text := string(m.Payload)
		_, _ = fmt.Sscan(text, &tenant, &id)
		if g.seen[text] {
			g.again++
			continue
		}
		g.seen[text] = true
		of := fmt.Sprint(tenant, " ", m.Key)
		g.of[of] = append(g.of[of], id)
	}
}

// judge compares the delivered messages with the orders: each once at least, and those of a tenant's key in order.
func (c *cluster) judge(got *carried) {
	c.Helper()
	rows, err := c.pool.Query(c.Context(), "select tenant, id, key from "+c.orders()+" order by tenant, key, id")
	c.must(err)
	want := map[string][]int64{}
	var tenant, id int64
	var key string
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&tenant, &id, &key}, func() error {
		of := fmt.Sprint(tenant, " ", key)
		want[of] = append(want[of], id)
		n++
		return nil
	})
	c.must(err)
	for of, ids := range want {
		if fmt.Sprint(got.of[of]) != fmt.Sprint(ids) {
			c.Errorf("tenant and key %s: delivered %v, ordered %v", of, got.of[of], ids)
		}
	}
	if len(got.seen) != n {
		c.Errorf("%d messages of %d orders", len(got.seen), n)
	}
	c.Logf("%d orders, %d delivered again, %d errors of relays", n, got.again, got.errs)
}

// load produces and relays, and disturbs meanwhile.
func (c *cluster) load(orders int, disturb func()) {
	produced := make(chan struct{})
	var all sync.WaitGroup
	failed := 0
	all.Go(func() {
		failed = c.produce(orders)
		close(produced)
	})
	all.Go(disturb)
	got := c.relays(produced)
	all.Wait()
	c.Logf("%d orders failed", failed)
	c.judge(got)
}

// An order and its message are one worker's: nothing is prepared.
func TestDistributedIsOneWorkers(t *testing.T) {
	c := onCitus(t)
	exec(t, c.url, "select recover_prepared_transactions()")
	before := c.count("select count(*) from pg_dist_transaction")
	if failed := c.produce(25); failed > 0 {
		t.Errorf("%d orders failed", failed)
	}
	if after := c.count("select count(*) from pg_dist_transaction"); after != before {
		t.Errorf("%d transactions were prepared", after-before)
	}
	produced := make(chan struct{})
	close(produced)
	c.judge(c.relays(produced))
}

// Shards move to the other worker and are split, while messages are written and read.
func TestDistributedMoves(t *testing.T) {
	c := onCitus(t)
	c.load(150, func() {
		move := `select citus_move_shard_placement(s.shardid, s.nodename, s.nodeport, w.node_name, w.node_port::int, shard_transfer_mode => 'block_writes')
			from citus_shards s join citus_get_active_worker_nodes() w on w.node_port <> s.nodeport
			where s.table_name = $1::regclass and s.shardid = (select min(shardid) + $2 from citus_shards where table_name = $1::regclass)`
		for shard := range 4 {
			exec(t, c.url, move, c.schema+".outbox_orders", shard)
		}
		exec(t, c.url, `select citus_split_shard_by_split_points(s.shardid, array[s.middle], array[s.nodeid, s.nodeid], 'block_writes')
			from (select s.shardid, ((s.shardminvalue::bigint + s.shardmaxvalue::bigint) / 2)::text as middle, n.nodeid
			        from pg_dist_shard s join pg_dist_placement p using (shardid) join pg_dist_node n using (groupid)
			       where s.logicalrelid = $1::regclass order by s.shardid desc limit 1) s`, c.schema+".outbox_orders")
	})
}

// A worker is killed and comes back: PENSTOCK_TEST_CITUS_KILL is the command that does both.
func TestDistributedWorkerKilled(t *testing.T) {
	kill := os.Getenv("PENSTOCK_TEST_CITUS_KILL")
	c := onCitus(t)
	if kill == "" {
		t.Skip("PENSTOCK_TEST_CITUS_KILL names no command")
	}
	c.load(300, func() {
		for range 2 {
			time.Sleep(time.Second) // of load
			// It waits until the worker is there again.
			if out, err := osexec.CommandContext(t.Context(), "sh", "-c", kill).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
}

// The statements of a distributed outbox carry messages, also where there is no Citus.
func TestDistributedStatements(t *testing.T) {
	t.Parallel()
	likeCitus(t).load(50, func() {})
	refused(t, likeCitus(t))
}

// Messages that the sink refuses wait, are tried again, die, come back, and are discarded.
func TestDistributedRefused(t *testing.T) { refused(t, onCitus(t)) }

func refused(t *testing.T, c *cluster) {
	src, err := c.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	c.must(err)
	defer func() { _ = src.Close(context.Background()) }()
	attempt := uint64(0)
	settle := func(want int, in ...driver.Verdict) {
		t.Helper()
		b, err := src.Fetch(t.Context(), plenty)
		c.must(err)
		if len(b.Messages) != want {
			t.Fatalf("%d messages, want %d", len(b.Messages), want)
		}
		verdicts := make([]driver.Verdict, want)
		for i := range verdicts {
			verdicts[i] = in[i%len(in)]
		}
		attempt++
		c.must(src.Settle(t.Context(), attempt, driver.Settled{Batch: b, Verdicts: verdicts}))
	}
	failure := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}
	delivered, parked := driver.Verdict{Outcome: driver.Delivered}, driver.Verdict{Outcome: driver.Parked, Failures: failure}
	for id, key := range []string{"a", "b", "c"} {
		c.must(c.order(t.Context(), 7, int64(id), key))
	}
	settle(3, delivered, parked) // the one between two that are delivered
	settle(1, delivered)
	for id := range int64(3) {
		c.must(c.order(t.Context(), id, 2*id, "k"))
	}
	settle(3, parked)
	status, err := c.store.Status(t.Context())
	c.must(err)
	if s := status[0].Subscriptions[0]; s.Parked != 3 || s.Backlog != 0 {
		t.Errorf("status %+v", s)
	}
	settle(1, driver.Verdict{Outcome: driver.Dead, Failures: failure}) // the head of the key
	settle(1, delivered)
	settle(1, driver.Verdict{Outcome: driver.Dead, Failures: failure})
	dead := admin.DeadLetterQuery{Outbox: "orders", Subscription: "sub"}
	letters, err := c.store.DeadLetters(t.Context(), dead)
	c.must(err)
	if len(letters) != 2 {
		t.Fatalf("%d dead letters", len(letters))
	}
	dead.Seqs = []int64{letters[0].Message.Seq}
	n, err := c.store.RetryDeadLetters(t.Context(), dead)
	c.must(err)
	settle(n, delivered)
	dead.Seqs = nil
	if n, err := c.store.DiscardDeadLetters(t.Context(), dead); err != nil || n != 1 {
		t.Errorf("discarded %d, %v", n, err)
	}
	c.must(c.store.Maintain(t.Context(), "orders"))
	if left := c.count("select count(*) from " + c.schema + ".outbox_orders"); left != 0 {
		t.Errorf("%d messages are left", left)
	}
}

// A distributed outbox refuses calls that it cannot serve, with the next step.
func TestDistributedRefuses(t *testing.T) {
	c := onCitus(t)
	ctx := t.Context()
	src, err := c.store.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	c.must(err)
	defer func() { _ = src.Close(context.Background()) }()
	_, second := c.store.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "other", Holder: "test"})
	_, replay := c.store.Replay(ctx, admin.Replay{Outbox: "orders", Subscription: "sub"})
	message := penstock.Message{Payload: []byte("x")}
	within := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return c.store.Outbox("orders").PublishTx(ctx, tx, message) })
	exec(t, c.url, "create table "+c.schema+".plain (id bigint)")
	exec(t, c.url, "create table "+c.schema+".by_array (tenant bigint[] not null)")
	exec(t, c.url, "select create_distributed_table('"+c.schema+".by_array', 'tenant')")
	for what, err := range map[string]error{
		"a second subscription":           second,
		"retention":                       c.store.SetRetention(ctx, "orders", admin.Retention{Age: time.Hour}),
		"replay":                          replay,
		"Publish":                         c.store.Publish(ctx, "orders", message),
		"Publish of a tenant":             c.store.Outbox("orders").For("tenant", 7).Publish(ctx, message),
		"PublishTx without a tenant":      within,
		"a table that is not distributed": c.store.CreateDistributedOutbox(ctx, "new", "tenant", c.schema+".plain"),
		"a table that is not there":       c.store.CreateDistributedOutbox(ctx, "new", "tenant", "nowhere"),
		"a column that outboxes have":     c.store.CreateDistributedOutbox(ctx, "new", "key", c.orders()),
		"an array":                        c.store.CreateDistributedOutbox(ctx, "new", "tenant", c.schema+".by_array"),
	} {
		if hint, ok := errors.AsType[*penstock.HintError](err); !ok || hint.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left := c.count("select count(*) from " + c.schema + ".outbox_orders"); left != 0 {
		t.Errorf("%d messages were written", left)
	}
	c.must(c.store.DropOutbox(ctx, "orders"))
}

// On another engine no outbox is distributed.
func TestNothingIsDistributed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	if is := engine(t, f.url); is == "Citus" {
		t.Skip("this is Citus")
	}
	err := f.store.CreateDistributedOutbox(t.Context(), "new", "tenant", "shop_order")
	if err == nil || !strings.Contains(err.Error(), "PostgreSQL does not distribute") {
		t.Errorf("%v", err)
	}
}

// The value by which messages are distributed may be anything that the application's table has.
func TestDistributedTenants(all *testing.T) {
	for name, of := range map[string]func(*testing.T) *cluster{"Citus": onCitus, "statements": likeCitus} {
		all.Run(name, func(t *testing.T) {
			c := of(t)
			mood := "public." + c.schema + "_mood"
			exec(t, c.url, "create type "+mood+` as enum ('so, so', 'it''s "{}" \')`)
			if name == "Citus" {
				all.Cleanup(func() { exec(all, c.url, "drop type "+mood) }) // after the schema
			}
			for i, kind := range []struct {
				kind   string
				values []string
			}{
				{"text", []string{"", " ", "null", "NULL", `"`, `\`, `\"`, "{}", "{a,b}", "a,b", "'", "{tenants}", "$1", "é\u2028", "\t\n", "(a)", strings.Repeat("x", 2000)}},
				{"varchar(20)", []string{"a b", `{"a"}`, "ab"}},
				{"uuid", []string{"7d444840-9dc0-11d1-b245-5ffdce74fad2"}},
				{"date", []string{"2026-11-30", "infinity", "0044-03-15 BC"}},
				{"timestamptz", []string{"2026-11-30 10:00:00.123456+02", "-infinity"}},
				{"bytea", []string{`\x00ff5c22`, `\x`}},
				{"numeric", []string{"1.10", "NaN", "-0.000000001"}},
				{"double precision", []string{"0.1", "1e300"}},
				{"interval", []string{"1 mon -3 days 00:00:01.5"}},
				{"jsonb", []string{`{"a": "b\"c"}`, `null`}},
				{"inet", []string{"10.0.0.1/8"}},
				{mood, []string{"so, so", `it's "{}" \`}},
			} {
				name, column := fmt.Sprint("of_", i), []string{"tenant", `Te"n ant`, "order"}[i%3]
				table := c.schema + ".rows_" + name
				quoted := pgx.Identifier{column}.Sanitize()
				exec(t, c.url, "create table "+table+" ("+quoted+" "+kind.kind+" not null)")
				exec(t, c.url, "select create_distributed_table($1::text, $2::text, shard_count => 4)", table, column)
				if err := c.store.CreateDistributedOutbox(t.Context(), name, column, table); err != nil {
					t.Errorf("%s: %v", kind.kind, err)
					continue
				}
				for _, value := range kind.values {
					err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
						if err := c.store.Outbox(name).For(column, value).PublishTx(t.Context(), tx, penstock.Message{Key: "k", Payload: []byte(value)}); err != nil {
							return err
						}
						_, err := tx.Exec(t.Context(), "insert into "+c.schema+".outbox_"+name+" ("+quoted+", key, payload) values ($1, 'k', $2)", value, []byte(value))
						return err
					})
					if err != nil {
						t.Errorf("%s, %q: %v", kind.kind, value, err)
					}
				}
				src, err := c.store.Subscribe(t.Context(), driver.Subscribe{Outbox: name, Subscription: "sub", Holder: "test"})
				c.must(err)
				b, err := src.Fetch(t.Context(), plenty)
				if err != nil || len(b.Messages) != 2*len(kind.values) {
					t.Errorf("%s: %d messages of %d, %v", kind.kind, len(b.Messages), 2*len(kind.values), err)
				} else if err := src.Settle(t.Context(), 1, driver.Settled{Batch: b}); err != nil {
					t.Errorf("%s: %v", kind.kind, err)
				}
				if left := c.count("select count(*) from " + c.schema + ".outbox_" + name); left != 0 {
					t.Errorf("%s: %d are left", kind.kind, left)
				}
				c.must(src.Close(t.Context()))
			}
		})
	}
}

// A transaction under each isolation level publishes, unless it is rolled back or prepared: Citus refuses PREPARE TRANSACTION.
func TestDistributedTransactions(t *testing.T) {
	c := onCitus(t)
	want, id := 0, 0
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, tenants := range [][]int64{{7}, {1, 2, 3, 4, 5, 6}} {
			for _, end := range []string{"commit", "rollback", "savepoint", "prepare transaction 'of_the_application'"} {
				tx, err := c.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				c.must(err)
				defer func() { _ = tx.Rollback(context.Background()) }() // if the test fails
				do := func(sql string, args ...any) {
					t.Helper()
					if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
						t.Errorf("%s, %v, %s: %v", level, tenants, sql, err)
					}
				}
				if end == "savepoint" {
					do("savepoint s")
				}
				for _, tenant := range tenants {
					id++
					do("insert into "+c.orders()+" values ($1, $2, 'k')", tenant, id)
					c.must(c.store.Outbox("orders").For("tenant", tenant).PublishTx(t.Context(), tx, penstock.Message{Key: "k", Payload: []byte(end)}))
				}
				switch {
				case end == "savepoint":
					do("rollback to s")
					c.must(tx.Commit(t.Context()))
				case end == "commit":
					want += len(tenants)
					c.must(tx.Commit(t.Context()))
				case end == "rollback":
					c.must(tx.Rollback(t.Context()))
				default:
					if _, err := tx.Exec(t.Context(), end); err == nil {
						t.Errorf("%s, %v: a transaction of several servers was prepared", level, tenants)
					}
					_ = tx.Rollback(t.Context())
				}
			}
		}
	}
	if n := c.count("select count(*) from " + c.orders()); n != int64(want) {
		t.Errorf("%d orders, want %d", n, want)
	}
	for _, level := range []string{"repeatable read", "serializable"} { // of the relay's role
		src, err := openStore(t, c.url+"&default_transaction_isolation="+strings.ReplaceAll(level, " ", "%20"), portable.Options{Schema: c.schema}).Subscribe(t.Context(),
			driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: level})
		c.must(err)
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: want / 2, Bytes: 1 << 20})
		c.must(err)
		if len(b.Messages) != want/2 {
			t.Errorf("%s: %d messages, want %d", level, len(b.Messages), want/2)
		}
		for _, m := range b.Messages {
			if string(m.Payload) != "commit" {
				t.Errorf("%s: delivered what ended with %s", level, m.Payload)
			}
		}
		if err := src.Settle(t.Context(), 1, driver.Settled{Batch: b}); err != nil {
			t.Errorf("%s: %v", level, err)
		}
		c.must(src.Close(t.Context()))
	}
	if left := c.count("select count(*) from " + c.schema + ".outbox_orders"); left != int64(want%2) {
		t.Errorf("%d messages are left", left)
	}
}

// Shards move to the other worker between a Fetch and its Settle.
func TestDistributedMovesBeforeSettle(t *testing.T) {
	c := onCitus(t)
	move := `select citus_move_shard_placement(s.shardid, s.nodename, s.nodeport, w.node_name, w.node_port::int, shard_transfer_mode => $2)
		from citus_shards s join citus_get_active_worker_nodes() w on w.node_port <> s.nodeport where s.table_name = $1::regclass limit $3`
	for attempt, mode := range []string{"block_writes", "force_logical"} {
		for tenant := range int64(10) {
			c.must(c.order(t.Context(), tenant, int64(attempt), "k"))
		}
		src, err := c.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
		c.must(err)
		b, err := src.Fetch(t.Context(), plenty)
		c.must(err)
		if len(b.Messages) != 10 {
			t.Fatalf("%s: %d messages", mode, len(b.Messages))
		}
		exec(t, c.url, move, c.schema+".outbox_orders", mode, map[string]int{"block_writes": 100, "force_logical": 1}[mode]) // of which Citus moves one at a time
		again, err := src.Fetch(t.Context(), plenty)
		c.must(err)
		if len(again.Messages) != 0 {
			t.Errorf("%s: %d messages in flight were fetched again", mode, len(again.Messages))
		}
		c.must(src.Settle(t.Context(), 1, driver.Settled{Batch: b}))
		if left := c.count("select count(*) from " + c.schema + ".outbox_orders"); left != 0 {
			t.Errorf("%s: %d messages are left", mode, left)
		}
		c.must(src.Close(t.Context()))
	}
}

package portable_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/portable"
)

// far has the coordinator reach each worker through a proxy, until the test ends.
func (c *cluster) far() {
	rows, err := c.pool.Query(c.Context(), "select nodeid, nodename, nodeport::text from pg_dist_node where groupid > 0 order by nodeid")
	c.must(err)
	type node struct {
		ID         int32
		Name, Port string
	}
	nodes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[node])
	c.must(err)
	at := func(id int32, host, port string) error {
		conn, err := pgx.Connect(context.Background(), c.url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		for _, sql := range []string{fmt.Sprintf("select citus_update_node(%d, '%s', %s)", id, host, port), "select start_metadata_sync_to_all_nodes()"} {
			if _, err := conn.Exec(context.Background(), sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	}
	for _, n := range nodes {
		p := tcpproxy.New(c, net.JoinHostPort(n.Name, n.Port))
		host, port, err := net.SplitHostPort(p.Addr())
		c.must(err)
		c.must(at(n.ID, host, port))
		c.Cleanup(func() { // before the proxy ends
			if err := at(n.ID, n.Name, n.Port); err != nil {
				c.Error(err)
			}
		})
		c.proxies = append(c.proxies, p)
	}
}

// drain has relays carry messages of 40 tenants, with all shards on one worker or spread over all, and returns messages per second.
func (c *cluster) drain(spread bool, relays, messages int, roundTrip time.Duration) float64 {
	name := fmt.Sprintf("far_%t_%d", spread, relays)
	exec(c, c.url, "select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', $1 or groupid = (select min(groupid) from pg_dist_node where groupid > 0)) from pg_dist_node where groupid > 0", spread)
	defer exec(c, c.url, "select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) from pg_dist_node where groupid > 0")
	table := c.schema + ".rows_" + name
	exec(c, c.url, "create table "+table+" (tenant bigint not null)")
	exec(c, c.url, "select create_distributed_table('"+table+"', 'tenant', shard_count => 8, colocate_with => 'none')")
	c.must(c.store.CreateDistributedOutbox(c.Context(), name, "tenant", table))
	exec(c, c.url, fmt.Sprintf("insert into %s.outbox_%s (tenant, key, payload) select i %% 40, 'k' || i %% 1000, '%s' from generate_series(1, %d) i", c.schema, name, strings.Repeat("x", 200), messages))
	exec(c, c.url, "analyze "+c.schema+".outbox_"+name)
	sources := make([]driver.Source, relays)
	for i := range sources {
		var err error
		sources[i], err = openStore(c, c.url, portable.Options{Schema: c.schema, Sweep: time.Minute}).SubscribeShared(c.Context(), driver.Subscribe{Outbox: name, Subscription: "sub", Holder: fmt.Sprint("relay ", i), Lease: time.Minute})
		c.must(err)
		defer func() { _ = sources[i].Close(c.Context()) }()
	}
	for range relays + 1 { // until each has its part
		for _, src := range sources {
			c.must(src.Renew(c.Context()))
		}
	}
	for _, p := range c.proxies {
		p.Delay(roundTrip / 2)
		defer p.Resume()
	}
	var all sync.WaitGroup
	var carried atomic.Int64
	began := time.Now()
	for _, src := range sources {
		all.Go(func() {
			for attempt := uint64(1); ; attempt++ {
				b, err := src.Fetch(c.Context(), driver.Limit{Messages: 100, Bytes: 1 << 20})
				if err == nil && len(b.Messages) == 0 {
					return
				}
				if err == nil {
					err = src.Settle(c.Context(), attempt, driver.Settled{Batch: b})
				}
				if err != nil {
					c.Error(err)
					return
				}
				carried.Add(int64(len(b.Messages)))
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if n := carried.Load(); n != int64(messages) {
		c.Errorf("%d of %d messages were carried", n, messages)
	}
	return float64(messages) / took.Seconds()
}

// How many messages relays carry where each worker is far from the coordinator, by default 10 ms (PENSTOCK_TEST_CITUS_DISTANCE). The figures are logged; it takes a minute.
func TestDistributedDistance(t *testing.T) {
	testseed.Soak(t)
	roundTrip, err := time.ParseDuration(cmp.Or(os.Getenv("PENSTOCK_TEST_CITUS_DISTANCE"), "10ms"))
	if err != nil {
		t.Fatal(err)
	}
	c := onCitus(t)
	c.far()
	for _, spread := range []bool{false, true} {
		var alone float64
		for _, relays := range []int{1, 2, 4} {
			rate := c.drain(spread, relays, 1500*relays, roundTrip)
			alone = cmp.Or(alone, rate)
			t.Logf("spread over all workers: %t; %d relays: %.0f messages/s, %.2f of one relay", spread, relays, rate, rate/alone)
		}
	}
}

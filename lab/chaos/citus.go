package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/test/testserver"
)

// citusTenants is how many values the outbox in Citus is distributed by. A transaction of a single writer is mostly of one of them.
const citusTenants = 6

// citusDialect has the business's tables and the outbox distributed by tenant. The queue is the coordinator's. A transaction of both also
// writes to a table that all servers have. Only then does Citus prepare it: otherwise a server that is killed during the commit may leave half of it.
func citusDialect() dialect {
	d := postgresDialect(portable)
	d.options, d.tenants, d.joint = "", citusTenants, "insert into {business}unrelated values (current_timestamp)"
	d.after = []string{"select create_distributed_table('business.account', 'tenant')", "select create_distributed_table('business.fact', 'tenant', colocate_with => 'business.account')",
		"select create_reference_table('business.unrelated')"}
	return d
}

// tenantOf is the tenant of a key, or of a message without one; empty where nothing is distributed.
func (d dialect) tenantOf(name string) string {
	if d.tenants == 0 {
		return ""
	}
	number, _ := strconv.Atoi(name[strings.LastIndex(name, "-")+1:]) // all end with one
	return fmt.Sprint("tenant ", number%d.tenants)
}

// distributed is text where tables are distributed.
func (d dialect) distributed(text, otherwise string) string {
	if d.tenants == 0 {
		return otherwise
	}
	return text
}

// tenants chooses the keys of a transaction, and its tenant: one in four has several.
func (w *writer) tenants() (quick, late []string, tenant string) {
	if w.dialect.tenants == 0 || w.random.IntN(4) == 0 {
		return quickKeys, lateKeys, ""
	}
	tenant = w.dialect.tenantOf(fmt.Sprint("-", w.random.IntN(w.dialect.tenants)))
	of := func(keys []string) (all []string) {
		for _, key := range keys {
			if w.dialect.tenantOf(key) == tenant {
				all = append(all, key)
			}
		}
		return all
	}
	return of(quickKeys), of(lateKeys), tenant
}

// citus has a coordinator, which is the rig's postgres, and two workers. The coordinator reaches them through proxies.
type citus struct {
	workers []*testserver.Postgres
	ways    []link
}

// startCitus starts all three with the extension, which the server's programs must have (PENSTOCK_TEST_PG_BIN).
func (r *rig) startCitus() error {
	conf := []string{"shared_preload_libraries = 'citus'", "wal_level = logical", "citus.node_conninfo = 'sslmode=disable'", "citus.recover_2pc_interval = 2s",
		"max_prepared_transactions = 200", "fsync = on", "full_page_writes = on", "log_min_messages = warning"}
	r.citus = &citus{}
	for i := range 3 {
		server, err := testserver.NewPostgres(conf...)
		if err != nil {
			return fmt.Errorf("a server with the extension citus, for which PENSTOCK_TEST_PG_BIN names the programs: %w", err)
		}
		if i == 0 {
			r.postgres = server
		} else {
			r.citus.workers = append(r.citus.workers, server)
			r.closers = append(r.closers, server.Close)
		}
		if err := r.onCitus(context.Background(), server.URL, "create extension citus"); err != nil {
			return err
		}
	}
	r.database, r.bin = r.postgres.URL, r.postgres.Bin
	u, err := url.Parse(r.database)
	if err != nil {
		return err
	}
	nodes := []string{fmt.Sprintf("select citus_set_coordinator_host('127.0.0.1', %s)", u.Port())}
	for i, w := range r.citus.workers {
		way, err := r.link(fmt.Sprint("citus-worker-", i+1), w.URL, subscriptions(routeNames("")...))
		if err != nil {
			return err
		}
		r.citus.ways = append(r.citus.ways, way)
		_, port, err := net.SplitHostPort(way.proxy.Addr())
		if err != nil {
			return err
		}
		nodes = append(nodes, fmt.Sprintf("select citus_add_node('127.0.0.1', %s)", port))
	}
	return r.onCitus(context.Background(), r.database, nodes...)
}

func (r *rig) onCitus(ctx context.Context, url string, statements ...string) error {
	return r.with(url, func(db *sql.DB) error {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// citusFaults kill workers, and move shards.
func (r *rig) citusFaults(everyone blast) (all []fault) {
	for i, w := range r.citus.workers {
		killed := r.crash("citus_worker_killed", r.citus.ways[i].name, everyone, recovering{w, r})
		killed.weight = 4
		all = append(all, killed)
	}
	return append(all, r.shardMoved(everyone))
}

// recovering is a server. Once it is there again, the coordinator ends the transactions that were prepared.
type recovering struct {
	*testserver.Postgres
	rig *rig
}

func (w recovering) Start() error {
	if err := w.Postgres.Start(); err != nil {
		return err
	}
	return w.rig.endPrepared(context.Background())
}

// endPrepared has Citus commit or roll back prepared transactions. It asks again while connections fail, of which each ended one fails once.
func (r *rig) endPrepared(ctx context.Context) (err error) {
	for range 20 {
		if err = r.onCitus(ctx, r.database, "select recover_prepared_transactions()"); err == nil {
			return nil
		}
		sleep(ctx, 100*time.Millisecond)
	}
	r.chronicle.printf("prepared transactions are left to Citus: %v", err)
	return nil // the coordinator is down, or another worker
}

// shardMoved has a shard of all distributed tables move to the other worker, while writers wait, or by logical replication.
func (r *rig) shardMoved(b blast) fault {
	return fault{"shard_moved", "shards", b, 6, func(ctx context.Context, random *rand.Rand, _ func()) (bool, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		mode := []string{"block_writes", "force_logical"}[random.IntN(2)]
		err := r.onCitus(ctx, r.database, fmt.Sprintf(`select citus_move_shard_placement(s.shardid, s.nodename, s.nodeport, w.node_name, w.node_port::int, shard_transfer_mode => '%s')
			from citus_shards s join citus_get_active_worker_nodes() w on w.node_port <> s.nodeport
			where s.table_name = 'penstock_portable.outbox_shop'::regclass order by hashint8(s.shardid + %d) limit 1`, mode, random.Int32()))
		if err != nil { // a server was killed meanwhile, or just now
			r.chronicle.printf("no shard was moved, %s: %v", mode, err)
		}
		return err == nil, nil
	}}
}

// healCitus starts all servers, and ends the transactions that are prepared.
func (r *rig) healCitus(ctx context.Context) error {
	errs := []error{r.postgres.Start()}
	for i, w := range r.citus.workers {
		r.citus.ways[i].proxy.Resume()
		errs = append(errs, w.Start())
	}
	return errors.Join(append(errs, r.endPrepared(ctx))...)
}

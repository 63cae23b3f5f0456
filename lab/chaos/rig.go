package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
)

//go:embed setup.sql
var setupSQL string

// rig is everything that runs: servers, proxies, relays and workers.
type rig struct {
	binary    string
	dir       string // logs end up here
	chronicle *chronicle

	store    string
	profile  string
	engine   string
	failover bool // what the run is about, instead of all other faults

	mysql     *testserver.MariaDB  // instead of PostgreSQL
	file      string               // of SQLite, instead of PostgreSQL
	postgres  *testserver.Postgres // the primary
	standby   *testserver.Postgres
	database  string          // URL of the database, of whichever server is the primary
	front     *tcpproxy.Proxy // the way there for the rig itself, which is never disturbed
	following *tcpproxy.Proxy // the standby's way to the primary
	losses    int             // how often WAL was lost
	bin       string          // of PostgreSQL's programs
	rabbit    *testserver.RabbitMQ
	nats      *natsServer
	consumer  *rabbitConsumer
	processes []*process // relays and workers
	handler   *handler   // of the workers
	producers link       // to PostgreSQL

	closers []func() error // in reverse order
}

// link is a way to a server, through a proxy if there is one.
type link struct {
	name  string
	proxy *tcpproxy.Proxy
	url   string
	blast blast // of a disturbance
}

// openRig starts everything.
func openRig(ctx context.Context, cfg config, c *chronicle) (*rig, error) {
	r := &rig{binary: cfg.binary, dir: cfg.dir, chronicle: c, store: cfg.store, profile: cfg.profile, engine: cfg.engine, failover: cfg.failover}
	err := r.open(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) open(ctx context.Context) error {
	if err := r.startServers(); err != nil {
		return err
	}
	setUp := map[string]func(context.Context) error{storePostgres: r.setUpPostgres, storeMySQL: r.setUpMySQL, storeSQLite: r.setUpSQLite}
	if err := setUp[r.store](ctx); err != nil {
		return fmt.Errorf("setting up the database: %w", err)
	}
	r.consumer = &rabbitConsumer{url: r.rabbit.URL, chronicle: r.chronicle}
	if err := errors.Join(r.consumer.declare(), r.nats.declare(ctx)); err != nil {
		return fmt.Errorf("declaring queues: %w", err)
	}
	producers, err := r.database+"&application_name="+producerName+"&connect_timeout=3", error(nil)
	if r.store == storeMySQL {
		if producers, err = asProducer(r.database); err != nil {
			return err
		}
	}
	if r.producers, err = r.databaseLink("producers-postgres", producers, blast{}); err != nil {
		return err
	}
	for _, name := range []string{"relay-a", "relay-b"} {
		if err := r.startRelay(name); err != nil {
			return err
		}
	}
	return r.startWorkers(ctx)
}

// setUpPostgres makes the standby, the business's tables and the outbox.
func (r *rig) setUpPostgres(ctx context.Context) error {
	r.bin = r.postgres.Bin
	if err := r.startStandby(); err != nil {
		return err
	}
	if _, err := r.penstock(ctx, "migrate"); err != nil {
		return err
	}
	return r.withPostgres(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, setupSQL); err != nil {
			return err
		}
		if err := r.createOutbox(ctx, conn); err != nil {
			return err
		}
		for _, key := range append(quickKeys, lateKeys...) {
			if _, err := conn.Exec(ctx, "insert into business.account (key) values ($1)", key); err != nil {
				return err
			}
		}
		return nil
	})
}

// connect is how producers do.
func (r *rig) connect(ctx context.Context, url string) (database, error) {
	switch r.store {
	case storeMySQL:
		return connectMySQL(ctx, url)
	case storeSQLite:
		return connectSQLite(r.file)
	}
	return connectPostgres(ctx, url, r.profile)
}

// The stores.
const (
	storePostgres = "postgres"
	storeMySQL    = "mysql"
	storeSQLite   = "sqlite"
)

// portable is the profile on plain tables.
const portable = "portable"

// createOutbox makes it with a small ring, or, in the portable profile, with numbers in blocks that each session has for itself.
func (r *rig) createOutbox(ctx context.Context, conn *pgx.Conn) error {
	if r.profile != portable {
		_, err := conn.Exec(ctx, "select penstock.create_outbox('shop', 8, 524288)")
		return err
	}
	if _, err := r.penstock(ctx, "outbox", "create", outbox); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "alter table penstock_portable.outbox_shop alter column seq set cache 100")
	return err
}

// producerName marks the producers' connections in pg_stat_activity.
const producerName = "chaos-producer"

func (r *rig) startServers() error {
	var starting sync.WaitGroup
	var errs [3]error
	starting.Go(func() {
		switch r.store {
		case storeMySQL:
			errs[0] = r.startMySQL()
		case storePostgres:
			r.postgres, errs[0] = testserver.NewPostgresWithClock("fsync = on", "full_page_writes = on", "log_min_messages = warning",
				"wal_keep_size = 1GB", "wal_retrieve_retry_interval = 200ms") // for the standby
		}
	})
	starting.Go(func() { r.rabbit, errs[1] = testserver.NewRabbitMQ() })
	starting.Go(func() { r.nats, errs[2] = startNATS() })
	starting.Wait()
	r.closers = append(r.closers, func() error { return closeAll(r.postgres, r.standby) })
	if r.rabbit != nil {
		r.closers = append(r.closers, r.rabbit.Close)
	}
	if r.nats != nil {
		r.closers = append(r.closers, r.nats.Close)
	}
	return errors.Join(errs[:]...)
}

// closeAll closes those servers that there are.
func closeAll(servers ...*testserver.Postgres) error {
	var errs []error
	for _, p := range servers {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// startStandby has a second server follow the first. If the run is about failover
// the first waits for it, and clients are given both hosts and look for the one that
// takes writes. Otherwise the primary does not wait for it, and the database's address moves with a
// promotion (wal_loss.go).
func (r *rig) startStandby() (err error) {
	if !r.failover {
		front, err := r.link("front", r.postgres.URL, blast{})
		if err != nil {
			return err
		}
		following, err := r.link("following", r.postgres.URL, blast{})
		if err != nil {
			return err
		}
		r.front, r.database, r.following = front.proxy, front.url, following.proxy
		r.standby, err = r.postgres.NewAsyncStandby(r.following.Addr())
		return err
	}
	if r.standby, err = r.postgres.NewStandby(); err != nil {
		return err
	}
	primary, err := url.Parse(r.postgres.URL)
	if err != nil {
		return err
	}
	standby, err := url.Parse(r.standby.URL)
	if err != nil {
		return err
	}
	primary.Host = standby.Host + "," + primary.Host
	r.database = primary.String() + "&target_session_attrs=read-write"
	return nil
}

// databaseLink is link, but without a proxy where there are several hosts, or a file.
func (r *rig) databaseLink(name, rawURL string, b blast) (link, error) {
	if r.failover || r.store == storeSQLite {
		return link{name: name, url: rawURL, blast: b}, nil
	}
	return r.link(name, rawURL, b)
}

// link puts a proxy in front of the server in rawURL.
func (r *rig) link(name, rawURL string, b blast) (link, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return link{}, err
	}
	proxy, err := tcpproxy.Start(u.Host)
	if err != nil {
		return link{}, err
	}
	r.closers = append(r.closers, func() error { proxy.Close(); return nil })
	u.Host = proxy.Addr()
	return link{name: name, proxy: proxy, url: u.String(), blast: b}, nil
}

// heal undoes whatever a fault may have left.
func (r *rig) heal(ctx context.Context) error {
	errs := []error{r.rabbit.Start(), r.nats.Start()}
	if proxy := r.producers.proxy; proxy != nil {
		proxy.Resume()
	}
	switch {
	case r.store == storeMySQL:
		errs = append(errs, r.mysql.Start())
	case r.store == storePostgres && !r.failover:
		errs = append(errs, r.postgres.Start(), r.postgres.SetClock(0))
	}
	for _, p := range r.processes {
		for _, l := range p.links() {
			l.proxy.Trap(0, nil)
			l.proxy.Resume()
		}
		errs = append(errs, p.alive(), p.Start(), p.Resume())
	}
	errs = append(errs, r.consumer.route(topicLaterRabbit, true), r.nats.route(ctx, true, false))
	return errors.Join(errs...)
}

// close ends everything, with the logs kept in the run's folder.
func (r *rig) close() error {
	r.keepLogs()
	var errs []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i]())
	}
	return errors.Join(errs...)
}

// penstock runs a command of the binary against the database, without a proxy.
func (r *rig) penstock(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, append(append(args, "--database-url", r.database), r.profileFlags()...)...)
	cmd.Dir, cmd.Env = r.dir, []string{"HOME=" + r.dir}
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("penstock %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}

func (r *rig) profileFlags() []string {
	if r.store != storePostgres {
		return nil
	}
	return []string{"--profile", r.profile}
}

// subscriptionStatus is a subscription in penstock status --json.
type subscriptionStatus struct {
	Subscription string `json:"subscription"`
	Backlog      int64  `json:"backlog"`
	Settled      int64  `json:"settled"`
	Parked       int64  `json:"parked"`
	DeadLetters  int64  `json:"dead_letters"`
	Holder       string `json:"holder"`
	Epoch        int64  `json:"epoch"`
}

func (r *rig) status(ctx context.Context) (all []subscriptionStatus, jobs queueStatus, err error) {
	out, err := r.penstock(ctx, "status", "--json")
	if err != nil {
		return nil, jobs, err
	}
	var said struct {
		Outboxes []struct {
			Subscriptions []subscriptionStatus `json:"subscriptions"`
		} `json:"outboxes"`
		Queues []queueStatus `json:"queues"`
	}
	if err := json.Unmarshal(out, &said); err != nil || len(said.Outboxes) != 1 || len(said.Queues) != 1 {
		return nil, jobs, fmt.Errorf("penstock status --json wrote %q: %w", out, err)
	}
	return said.Outboxes[0].Subscriptions, said.Queues[0], nil
}

func (r *rig) withPostgres(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, r.database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return fn(conn)
}

// facts reads the business table, once no producer writes to it any more.
func (r *rig) facts(ctx context.Context) (map[string]message, error) {
	switch r.store {
	case storeMySQL:
		return r.mysqlFacts(ctx)
	case storeSQLite:
		return r.sqliteFacts(ctx)
	}
	facts := map[string]message{}
	err := r.withPostgres(ctx, func(conn *pgx.Conn) error {
		for writing := 1; writing > 0; sleep(ctx, 50*time.Millisecond) {
			err := conn.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1", producerName).Scan(&writing)
			if err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
		}
		rows, err := conn.Query(ctx, "select id, coalesce(key, ''), n, topic, own_id from business.fact")
		if err != nil {
			return err
		}
		var m message
		_, err = pgx.ForEachRow(rows, []any{&m.ID, &m.Key, &m.N, &m.Topic, &m.OwnID}, func() error {
			facts[m.ID] = m
			return nil
		})
		return err
	})
	return facts, err
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
)

// rig is everything that runs: servers, proxies, relays and workers.
type rig struct {
	binary    string
	dir       string // logs end up here
	chronicle *chronicle

	dialect
	store    string
	profile  string
	failover bool // what the run is about, instead of all other faults

	mysql     *testserver.MariaDB  // instead of PostgreSQL
	postgres  *testserver.Postgres // the primary
	standby   *testserver.Postgres
	citus     *citus          // if the primary is a coordinator
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
	r := &rig{binary: cfg.binary, dir: cfg.dir, chronicle: c, dialect: dialectOf(cfg), store: cfg.store, profile: cfg.profile, failover: cfg.failover}
	err := r.start(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context) error {
	if err := r.startServers(); err != nil {
		return err
	}
	if err := r.setUp(ctx); err != nil {
		return fmt.Errorf("setting up the database: %w", err)
	}
	r.consumer = &rabbitConsumer{url: r.rabbit.URL, chronicle: r.chronicle}
	if err := errors.Join(r.consumer.declare(), r.nats.route(ctx, true, false)); err != nil {
		return fmt.Errorf("declaring queues: %w", err)
	}
	producers, err := r.database, error(nil)
	if r.asProducer != nil {
		if producers, err = r.asProducer(r.database); err != nil {
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

// setUp makes the standby, the business's tables and the outbox.
func (r *rig) setUp(ctx context.Context) error {
	switch r.store {
	case storePostgres:
		r.bin = r.postgres.Bin
		if err := r.startStandby(); err != nil {
			return err
		}
	case storeSQLite:
		r.database = "sqlite:" + filepath.Join(r.dir, "shop.db")
	}
	if _, err := r.penstock(ctx, "migrate"); err != nil {
		return err
	}
	if r.store == storeCitus {
		if err := r.dialect.setUp(ctx, r.database); err != nil {
			return err
		}
		_, err := r.penstock(ctx, "outbox", "create", outbox, "--distribute-by", "tenant", "--colocate-with", "business.account")
		return err
	}
	if r.store != storePostgres || r.profile == portable {
		if _, err := r.penstock(ctx, "outbox", "create", outbox); err != nil {
			return err
		}
	}
	return r.dialect.setUp(ctx, r.database)
}

func (r *rig) startServers() error {
	var starting sync.WaitGroup
	var errs [3]error
	starting.Go(func() {
		switch r.store {
		case storeMySQL:
			if r.mysql, errs[0] = testserver.NewMariaDB(); errs[0] == nil {
				r.closers = append(r.closers, r.mysql.Close)
				r.database = r.mysql.URL + "?engine=" + strings.TrimPrefix(r.options, "engine = ")
			}
		case storePostgres:
			r.postgres, errs[0] = testserver.NewPostgresWithClock("fsync = on", "full_page_writes = on", "log_min_messages = warning",
				"wal_keep_size = 1GB", "wal_retrieve_retry_interval = 200ms") // for the standby
		case storeCitus:
			errs[0] = r.startCitus()
		}
	})
	starting.Go(func() { r.rabbit, errs[1] = testserver.NewRabbitMQ() })
	starting.Go(func() { r.nats, errs[2] = startNATS() })
	starting.Wait()
	r.closers = append(r.closers, func() (err error) {
		for _, p := range []*testserver.Postgres{r.postgres, r.standby} { // those that there are
			if p != nil {
				err = errors.Join(err, p.Close())
			}
		}
		return err
	})
	if r.rabbit != nil {
		r.closers = append(r.closers, r.rabbit.Close)
	}
	if r.nats != nil {
		r.closers = append(r.closers, r.nats.Close)
	}
	return errors.Join(errs[:]...)
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
	case r.store == storeCitus:
		errs = append(errs, r.healCitus(ctx))
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
	if r.store != storePostgres && r.store != storeCitus {
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
	out, err := r.penstock(ctx, "status", "--groups", "--json")
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

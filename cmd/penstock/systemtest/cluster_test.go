package systemtest

import (
	"errors"
	"net/url"
	"testing"

	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
)

// cluster is a PostgreSQL with an asynchronous standby. Clients get two hosts and look for the one
// that accepts writes. A lost server is replaced by another at its address.
type cluster struct {
	t                testing.TB
	primary, standby *testserver.Postgres
	way              *tcpproxy.Proxy    // the standby's to the primary
	hosts            [2]*tcpproxy.Proxy // the primary's, the standby's
	url              string
	promotions       int
}

func startCluster(t testing.TB, conf ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, primary: testserver.StartPostgres(t, append(conf, "wal_keep_size = 256MB", "wal_retrieve_retry_interval = 100ms")...)}
	c.way = tcpproxy.New(t, c.host(c.primary))
	c.hosts = [2]*tcpproxy.Proxy{tcpproxy.New(t, c.host(c.primary)), tcpproxy.New(t, c.host(c.primary))}
	c.follow()
	u, err := url.Parse(c.primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = c.hosts[1].Addr() + "," + c.hosts[0].Addr()
	c.url = u.String() + "&target_session_attrs=read-write"
	return c
}

func (c *cluster) host(p *testserver.Postgres) string {
	c.t.Helper()
	u, err := url.Parse(p.URL)
	if err != nil {
		c.t.Fatal(err)
	}
	return u.Host
}

// follow creates a standby.
func (c *cluster) follow() {
	c.t.Helper()
	standby, err := c.primary.NewAsyncStandby(c.way.Addr())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = standby.Close() })
	c.standby = standby
	c.hosts[1].Redirect(c.host(standby))
}

// cutOff stops replication to the standby from now on.
func (c *cluster) cutOff() {
	c.t.Helper()
	if err := c.primary.AwaitAsyncStandby(); err != nil {
		c.t.Fatal(err)
	}
	c.way.Refuse()
}

// promote kills the primary, promotes the standby and attaches another standby to it.
func (c *cluster) promote() {
	c.t.Helper()
	if err := errors.Join(c.primary.Kill(), c.standby.Promote()); err != nil {
		c.t.Fatal(err)
	}
	c.promotions++
	c.primary, c.hosts = c.standby, [2]*tcpproxy.Proxy{c.hosts[1], c.hosts[0]}
	c.way.Redirect(c.host(c.primary))
	c.way.Resume()
	c.follow()
}

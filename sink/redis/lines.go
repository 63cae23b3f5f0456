package redis

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// lines are connections. A Send has one for itself, so that ending the Send breaks this connection and
// no other: the client library does not look at its context while it reads.
type lines struct {
	cfg     *Config
	options redis.Options
	log     *slog.Logger
	warned  sync.Once

	mu     sync.Mutex
	idle   []*line
	closed bool
}

type line struct {
	client *redis.Client
	lines  *lines

	mu   sync.Mutex
	conn net.Conn
	over bool  // cut
	max  int64 // proto-max-bulk-len; 0: not known yet
}

func newLines(cfg *Config, o *redis.Options, log *slog.Logger) (*lines, error) {
	p := &lines{cfg: cfg, options: *o, log: log}
	if o.TLSConfig != nil {
		tls, err := cfg.TLS.Load()
		if err != nil {
			return nil, err
		}
		if tls.ServerName == "" {
			tls.ServerName = o.TLSConfig.ServerName
		}
		p.options.TLSConfig = tls
	}
	p.options.PoolSize = 1
	p.options.MaxRetries = -1 // the relay sends again, in order
	p.options.DialerRetries = 1
	p.options.DialTimeout = cfg.ConnectTimeout
	p.options.ReadTimeout, p.options.WriteTimeout = cfg.Timeout, cfg.Timeout
	p.options.ContextTimeoutEnabled = true
	p.options.DisableIdentity = true
	p.options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return p, nil
}

// take returns a line that no other Send has.
func (p *lines) take() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return l
	}
	l := &line{lines: p}
	options := p.options
	dial := redis.NewDialer(&options)
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, l.keep(conn)
	}
	options.OnConnect = l.ask
	l.client = redis.NewClient(&options)
	return l
}

// give takes a line back. After a failure the idle ones are given up too: they lead to the same server.
func (p *lines) give(l *line, broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !broken && !p.closed && !l.isOver() {
		p.idle = append(p.idle, l)
		return
	}
	for _, l := range append(p.idle, l) {
		_ = l.client.Close()
	}
	p.idle = nil
}

func (p *lines) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.idle {
		_ = l.client.Close()
	}
	p.idle = nil
}

// keep remembers the connection, unless the Send is over already.
func (l *line) keep(conn net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn = conn; l.over {
		return conn.Close()
	}
	return nil
}

// cut breaks the connection permanently.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over = true; l.conn != nil {
		_ = l.conn.Close()
	}
}

func (l *line) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// defaultMax is proto-max-bulk-len as servers have it unless it is set.
const defaultMax = 512 << 20

// limit is the largest field that the server accepts. The first call connects.
func (l *line) limit(ctx context.Context) (int64, error) {
	if l.max == 0 {
		// A user who may only write may not ping, but is logged in: ask was called.
		if err := l.client.Ping(ctx).Err(); err != nil && (l.max == 0 || !refused(err)) {
			return 0, err
		}
	}
	return l.max, nil
}

// ask learns from a new connection what the sink and the operator should know. It returns no error for
// a user without the right to ask, or a service without such a command.
func (l *line) ask(ctx context.Context, c *redis.Conn) error {
	if err := c.ClientSetName(ctx, "penstock").Err(); err != nil && !refused(err) {
		return err
	}
	l.max = defaultMax
	if limit, err := c.ConfigGet(ctx, "proto-max-bulk-len").Result(); err == nil {
		if n, err := strconv.ParseInt(limit["proto-max-bulk-len"], 10, 64); err == nil && n > 0 {
			l.max = n
		}
	} else if !refused(err) {
		return err
	}
	info, err := c.Info(ctx).Result()
	if err != nil {
		if refused(err) {
			return nil
		}
		return err
	}
	l.lines.warned.Do(func() {
		says := func(line string) bool { return strings.Contains(info, line) }
		if says("aof_enabled:0") && !l.lines.cfg.Fsync {
			l.lines.log.Warn("Redis keeps what it confirms in memory only until its next snapshot: a crash of the server loses messages; set appendonly yes there", "server", l.client.Options().Addr)
		}
		if says("maxmemory_policy:allkeys") && !says("maxmemory:0\r") {
			l.lines.log.Warn("Redis may remove whole streams when its memory is full; set maxmemory-policy noeviction there", "server", l.client.Options().Addr)
		}
	})
	return nil
}

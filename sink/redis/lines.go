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

	"github.com/penstock/penstock/internal/lines"
)

// pool has the connections. A Send cuts its own when it ends: the client library does not look at its
// context while it reads.
type pool struct {
	lines.Pool[*line]
	cfg     *Config
	options redis.Options
	log     *slog.Logger
	warned  sync.Once
}

type line struct {
	client *redis.Client
	pool   *pool
	wire   lines.Wire
	max    int64 // proto-max-bulk-len; 0: not known yet
}

// Close closes the connection.
func (l *line) Close() { _ = l.client.Close() }

func newPool(cfg *Config, o *redis.Options, log *slog.Logger) (*pool, error) {
	p := &pool{cfg: cfg, options: *o, log: log}
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
func (p *pool) take() *line {
	l, ok := p.Take()
	if ok {
		return l
	}
	l = &line{pool: p}
	options := p.options
	dial := redis.NewDialer(&options)
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, l.wire.Keep(conn)
	}
	options.OnConnect = l.ask
	l.client = redis.NewClient(&options)
	return l
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
	l.pool.warned.Do(func() {
		says := func(line string) bool { return strings.Contains(info, line) }
		if says("aof_enabled:0") && !l.pool.cfg.Fsync {
			l.pool.log.Warn("Redis keeps what it confirms in memory only until its next snapshot: a crash of the server loses messages; set appendonly yes there", "server", l.client.Options().Addr)
		}
		if says("maxmemory_policy:allkeys") && !says("maxmemory:0\r") {
			l.pool.log.Warn("Redis may remove whole streams when its memory is full; set maxmemory-policy noeviction there", "server", l.client.Options().Addr)
		}
	})
	return nil
}

package redis

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock/internal/lines"
)

// line is a connection. A Send cuts its own when it ends: the client library does not look at its
// context while it reads.
type line struct {
	lines.Wire
	sink   *Sink
	client *redis.Client
	max    int64 // proto-max-bulk-len; 0: not known yet

	commands commands // of the Send that has the line
}

// Close closes the connection.
func (l *line) Close() { _ = l.client.Close() }

func (s *Sink) newLine() *line {
	l, options := &line{sink: s}, s.options
	dial := redis.NewDialer(&options)
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, l.Keep(conn)
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

// ask learns facts from a new connection that the sink and the operator should know. It returns no error for
// a user without the right to ask, or a service without such a command.
func (l *line) ask(ctx context.Context, c *redis.Conn) error {
	if err := c.ClientSetName(ctx, "penstock").Err(); err != nil && !refused(err) {
		return err
	}
	limit, err := c.ConfigGet(ctx, "proto-max-bulk-len").Result()
	if err != nil && !refused(err) {
		return err
	}
	if l.max, _ = strconv.ParseInt(limit["proto-max-bulk-len"], 10, 64); l.max <= 0 {
		l.max = defaultMax
	}
	info, err := c.Info(ctx).Result()
	if err == nil {
		l.sink.warn.Do(func() { l.sink.warnOf(info) })
	} else if !refused(err) {
		return err
	}
	return nil
}

// warnOf warns of settings of the server that lose messages.
func (s *Sink) warnOf(info string) {
	if strings.Contains(info, "aof_enabled:0") && !s.cfg.Fsync {
		s.log.Warn("Redis keeps what it confirms in memory only until its next snapshot: a crash of the server loses messages; set appendonly yes there", "server", s.options.Addr)
	}
	if strings.Contains(info, "maxmemory_policy:allkeys") && !strings.Contains(info, "maxmemory:0\r") {
		s.log.Warn("Redis may remove whole streams when its memory is full; set maxmemory-policy noeviction there", "server", s.options.Addr)
	}
}

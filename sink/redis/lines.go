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
	client   *redis.Client
	max      int      // proto-max-bulk-len; 0: not known yet
	replica  bool     // it takes no writes
	commands commands // of the Send that has the line
}

// Close closes the connection.
func (l *line) Close() { _ = l.client.Close() }

func (s *Sink) newLine() *line {
	l, options := &line{}, s.options
	dial := redis.NewDialer(&options)
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			err = l.Keep(conn)
		}
		return conn, err
	}
	l.client = redis.NewClient(&options)
	return l
}

// limit is the largest field that the server accepts. The first call connects and asks, for the operator too. It
// returns no error for a user without the right to ask, or a service without such a command.
func (s *Sink) limit(ctx context.Context, l *line) (int, error) {
	if l.max > 0 {
		return l.max, nil
	}
	pipe := l.client.Pipeline()
	pipe.ClientSetName(ctx, "penstock")
	limit, info := pipe.ConfigGet(ctx, "proto-max-bulk-len"), pipe.Info(ctx)
	if _, err := pipe.Exec(ctx); err != nil && !refused(err) {
		return 0, err
	}
	if l.max, _ = strconv.Atoi(limit.Val()["proto-max-bulk-len"]); l.max <= 0 {
		l.max = 512 << 20 // as servers have it unless it is set
	}
	l.replica = strings.Contains(info.Val(), "role:slave")
	if info.Err() == nil {
		s.warn.Do(func() { s.warnOf(info.Val()) })
	}
	return l.max, nil
}

// warnOf warns of settings of the server that lose messages.
func (s *Sink) warnOf(info string) {
	if strings.Contains(info, "aof_enabled:0") && !s.cfg.Fsync {
		s.log.Warn("Redis keeps confirmed messages in memory only until its next snapshot: a crash of the server loses messages; set appendonly yes there", "server", s.options.Addr)
	}
	if strings.Contains(info, "maxmemory_policy:allkeys") && !strings.Contains(info, "maxmemory:0\r") {
		s.log.Warn("Redis may remove whole streams when its memory is full; set maxmemory-policy noeviction there", "server", s.options.Addr)
	}
}

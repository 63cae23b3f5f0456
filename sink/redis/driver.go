package redis

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "redis", Usage: "redis://HOST", Schemes: []string{"redis", "rediss"},
	Parse: ParseURL,
	Open: descriptor.Opens(func(c Config, log *slog.Logger) (*Sink, error) {
		redis.SetLogger(silent{}) // the relay says what fails; this is the whole program's, so Open leaves it alone
		return Open(c, log)
	}),
	// There is no binding for Redis. Fields of an entry are like Kafka's headers.
	Binding:  descriptor.Headers("redis", "ce_"),
	ReadBack: readBack,
	Reach:    reach,
}

// reach connects, logs in and asks whether the server takes writes.
func reach(ctx context.Context, c Config, log *slog.Logger) error {
	s, err := Open(c, log)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	l := s.pool.take()
	defer s.pool.Give(l, true)
	defer context.AfterFunc(ctx, l.wire.Cut)()
	role, err := l.client.Do(ctx, "ROLE").Slice()
	if err != nil && !refused(err) { // who may only write may not ask
		return s.explain(ctx, err)
	}
	if len(role) > 0 && role[0] != "master" {
		return s.explain(ctx, errReplica)
	}
	return nil
}

// silent is a logger for the client library.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

package kafka

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "kafka", Usage: "kafka://HOST", Schemes: []string{"kafka", "kafkas"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	Binding:  descriptor.Headers("kafka", "ce_"),
	ReadBack: readBack,
	Reach:    reach,
}

// reach asks a broker for the parts of the cluster.
func reach(ctx context.Context, c Config, log *slog.Logger) error {
	s, err := Open(c, log)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(ctx) }()
	p, err := s.pool.get(ctx)
	if err != nil {
		return s.unreachable(ctx, err)
	}
	defer s.pool.put(p)
	if err := p.reach(ctx); err != nil {
		return s.unreachable(ctx, err)
	}
	return nil
}

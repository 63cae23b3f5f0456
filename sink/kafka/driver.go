package kafka

import (
	"context"

	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "kafka", Usage: "kafka://HOST", Schemes: []string{"kafka", "kafkas"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	Binding:  descriptor.Headers("kafka", "ce_"),
	ReadBack: readBack,
	Reach:    descriptor.Reaches(Open, (*Sink).reach),
}

// reach asks a broker for the parts of the cluster.
func (s *Sink) reach(ctx context.Context) error {
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

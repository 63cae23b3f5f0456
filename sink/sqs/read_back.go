package sqs

import (
	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/readback"
)

// readBack is Driver.ReadBack.
func readBack(sinkURL, _, name string) (readback.Broker, error) {
	c, err := ParseURL(sinkURL)
	if err != nil {
		return nil, err
	}
	q, err := amazon.NewQueue(&c.Settings, name+".fifo")
	if err != nil {
		return nil, err
	}
	return readback.NewPulled(readback.Pulled{URL: amazon.Renamed(sinkURL, "/", name+".fifo"), Make: q.Make, Pull: q.Pull, Drop: q.Drop, Leave: q.Leave}), nil
}

package readback

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock/driver"
)

// Pulled is a Broker whose client asks for messages again and again. Its functions may fail while the broker is down: a message that
// was not read is asked for again.
type Pulled struct {
	URL string // for SinkURL
	// Make makes the queue, and Drop deletes it. Both may be nil.
	Make, Drop func(ctx context.Context) error
	// Pull passes on the available messages, or waits for a while. It reports whether there was nothing.
	Pull func(ctx context.Context, got func(Arrival)) (empty bool, err error)
	// Leave ends the client.
	Leave func() error

	finished chan struct{}
}

// NewPulled returns p, ready to be used.
func NewPulled(p Pulled) *Pulled {
	p.finished = make(chan struct{})
	return &p
}

// pause is how long a broker that is down is left alone.
const pause = 100 * time.Millisecond

// SinkURL is Broker's, like the methods below.
func (p *Pulled) SinkURL() string { return p.URL }

func (p *Pulled) Open(ctx context.Context, _ driver.Sink) error { return run(ctx, p.Make, "making") }

// Read ends when a Pull that began behind Finish has found nothing: everything that was confirmed was there by then.
func (p *Pulled) Read(ctx context.Context, got func(Arrival)) error {
	for {
		finished := false
		select {
		case <-p.finished:
			finished = true
		default:
		}
		empty, err := p.Pull(ctx, got)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		case empty && finished:
			return nil
		}
	}
}

func (p *Pulled) Finish(context.Context) error {
	select {
	case <-p.finished:
	default:
		close(p.finished)
	}
	return nil
}

func (p *Pulled) Remove(ctx context.Context) error { return run(ctx, p.Drop, "deleting") }

func (p *Pulled) Close() error { return p.Leave() }

func run(ctx context.Context, do func(context.Context) error, doing string) error {
	if do == nil {
		return nil
	}
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s the consumer's queue: %w", doing, err)
	}
	return nil
}

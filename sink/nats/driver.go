package nats

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers, which adds the server for Config.Embedded.
var Driver = descriptor.Sink[Config]{
	Name: "nats", Usage: "nats://HOST or embedded[:DIR]", Schemes: []string{"nats", "tls", "ws", "wss", "embedded"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	// NATS itself has no content type. The binding keeps the attribute among the others and
	// declares structured mode by a header as in HTTP.
	Binding:  descriptor.Binding{Name: "nats", Prefixes: []string{"ce-"}, DataContentType: "ce-datacontenttype", Structured: "Content-Type", Percent: true},
	ReadBack: readBack,
	Reach:    reach,
}

// reach connects and logs in; it creates no stream. The embedded server belongs to the relay's
// process.
func reach(_ context.Context, c Config, log *slog.Logger) error {
	c.SetDefaults()
	if c.Embedded != nil {
		return nil
	}
	s := &Sink{cfg: c, log: log, window: newWindow(c.MaxPending, windowBytes), quit: make(chan struct{}), known: make(chan struct{})}
	if err := s.connect(); err != nil {
		return err
	}
	defer func() {
		close(s.quit)
		s.letGo()
	}()
	if !s.up.Load() {
		return s.unavailable(nats.ErrNoServers)
	}
	return nil
}

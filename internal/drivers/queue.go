package drivers

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/readback"
)

// Queue is the sink that is a queue of the same database: its name. It is not opened like a broker: the store
// forwards (driver.Forwarder) and writes the jobs in one transaction with the subscription's cursor.
type Queue string

// SetDefaults does nothing.
func (*Queue) SetDefaults() {}

// Validate returns an error for a name that no queue has.
func (q *Queue) Validate() error {
	switch {
	case *q == "":
		return &penstock.FieldError{Problem: "is empty", Hint: "name a queue of the same database, as in queue: emails"}
	case len(*q) > penstock.MaxNameBytes:
		return &penstock.FieldError{Problem: fmt.Sprintf("is %d bytes long", len(*q)), Hint: fmt.Sprintf("name a queue; names have at most %d bytes", penstock.MaxNameBytes)}
	}
	return nil
}

// parseQueue parses queue:NAME.
func parseQueue(url string) (Queue, error) {
	q := Queue(url[min(len("queue:"), len(url)):])
	if wrong, ok := errors.AsType[*penstock.FieldError](q.Validate()); ok {
		wrong.Field = "name"
		return q, wrong
	}
	return q, nil
}

// queueDriver has no consumer: workers claim the jobs.
var queueDriver = descriptor.Sink[Queue]{
	Name: "queue", Usage: "queue:NAME", Schemes: []string{"queue"}, Parse: parseQueue, Open: openQueue,
	ReadBack: func(string, string, string) (readback.Broker, error) { return nil, errNoBroker },
}

var errNoBroker = errors.New("a queue is not a broker: its subscription is forwarded inside the database")

// Queue is the name of the queue, if the sink is one.
func (s *Sink) Queue() (name string, is bool) {
	q, is := s.Config().(*Queue)
	if !is {
		return "", false
	}
	return string(*q), true
}

func openQueue(Queue, *slog.Logger) (driver.Sink, error) {
	return nil, errNoBroker
}

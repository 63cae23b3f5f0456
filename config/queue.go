package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

// Queue is the sink that is a queue of the same database: its name. It is not
// opened like a broker: Forward writes the jobs in one transaction with the
// subscription's cursor.
type Queue string

// SetDefaults does nothing.
func (*Queue) SetDefaults() {}

// Validate finds names that no queue has.
func (q *Queue) Validate() error {
	switch {
	case *q == "":
		return &penstock.FieldError{Problem: "is empty", Hint: "name a queue of the same database, as in queue: emails"}
	case len(*q) > maxName:
		return &penstock.FieldError{Problem: fmt.Sprintf("is %d bytes long", len(*q)), Hint: fmt.Sprintf("name a queue; names have at most %d bytes", maxName)}
	}
	return nil
}

// parseQueue takes queue:NAME.
func parseQueue(url string) (Queue, error) {
	q := Queue(url[min(len("queue:"), len(url)):])
	var wrong *penstock.FieldError
	if errors.As(q.Validate(), &wrong) {
		wrong.Field = "name"
		return q, wrong
	}
	return q, nil
}

func openQueue(Queue, *slog.Logger) (penstock.Sink, error) {
	return nil, errors.New("a queue is no broker: its subscription is forwarded inside the database")
}

// Forward makes a job in a queue of every message of a subscription, until ctx ends;
// see postgres.Forward, also for its errors. The store is one that OpenStore opened.
func Forward(ctx context.Context, store penstock.Store, req penstock.Subscribe, queue string) error {
	if s, ok := store.(*postgres.Store); ok {
		return postgres.Forward(ctx, s, req, queue)
	}
	return cannotForward()
}

// queue says what does not go together with a queue: its messages never leave the
// database, and all of them go.
func (d *decoder) queue(path string, c *Config, s *Subscription) {
	if s.Sink.Queue == nil || d.broken[path] {
		return
	}
	fail := func(key string, p problem) { d.fail(d.near(join(path, key)), join(path, key), p) }
	if isSQLite(c.DatabaseURL.Reveal()) {
		d.invalid(path, cannotForward())
	}
	if !s.Filter.Empty() {
		fail("filter", problem{"is set for a queue, which gets every message", "remove it, or have an outbox of its own for what the queue is to get"})
	}
}

func cannotForward() error {
	return &penstock.FieldError{Field: "sink.queue", Problem: "is for PostgreSQL only",
		Hint: "with another database, enqueue in the business transaction itself: penstock.enqueue in SQL, or Enqueue in Go"}
}

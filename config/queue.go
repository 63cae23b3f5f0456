package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
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
// see postgres.Forward and sqlite.Forward, also for their errors. The store is one that
// OpenStore opened.
func Forward(ctx context.Context, store penstock.Store, req penstock.Subscribe, queue string) error {
	switch s := store.(type) {
	case *postgres.Store:
		return postgres.Forward(ctx, s, req, queue)
	case *sqlite.Store:
		return sqlite.Forward(ctx, s, req, queue)
	}
	return &penstock.FieldError{Field: "sink.queue", Problem: "is for PostgreSQL and SQLite", Hint: "enqueue in the business transaction itself"}
}

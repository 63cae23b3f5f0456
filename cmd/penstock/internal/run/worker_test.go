package run

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/store/sqlite"
)

// refusingWork is a store whose queue refuses maintenance at first, for each reason once.
type refusingWork struct {
	*sqlite.Store
	reasons []error
}

func (s *refusingWork) DriverQueue(name string) driver.Queue {
	return &refusingQueue{s.Store.DriverQueue(name), s}
}

type refusingQueue struct {
	driver.Queue
	store *refusingWork
}

func (q *refusingQueue) Maintain(ctx context.Context) error {
	if len(q.store.reasons) > 0 {
		err := q.store.reasons[0]
		q.store.reasons = q.store.reasons[1:]
		return err
	}
	return q.Queue.Maintain(ctx)
}

// A worker that starts while the database is killed, slow or full waits: it does not end.
func TestWorkerStartsOnASlowDatabase(t *testing.T) {
	for _, reason := range []error{io.ErrUnexpectedEOF, &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "53100"}, sqlite.ErrBusy} {
		synctest.Test(t, func(t *testing.T) {
			store := &refusingWork{sqlitetest.New(t), []error{reason}}
			if err := store.CreateQueue(t.Context(), "jobs", penstock.FIFO); err != nil {
				t.Fatal(err)
			}
			took := lineWriter(make(chan string, 100))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			cfg := &config.Config{Workers: []config.Worker{{Queue: "jobs", Exec: "true"}}}
			go func() {
				ended <- runUntil(ctx, cfg, Options{Store: store, Metrics: metrics.New(metrics.Options{}), Log: slog.New(slog.NewTextHandler(took, nil))})
			}()
			select {
			case err := <-ended:
				t.Fatalf("it has ended: %v", err)
			default:
				took.until(t, "msg=working")
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

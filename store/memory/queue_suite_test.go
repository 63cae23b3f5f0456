package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/store/memory"
)

func TestQueue(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Open: func(t testing.TB) queuetest.Instance {
			s := memory.New(memory.Options{})
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return queuetest.Instance{
				Store:   s,
				Begin:   func(ctx context.Context) (queuetest.Tx, error) { return s.Begin(ctx) },
				Another: func(testing.TB) driver.QueueStore { return s.Another() },
				Pin:     func(testing.TB) func() { return func() {} }, // nothing to hold back
				Backdate: func(t testing.TB, queue, schedule string, by time.Duration) {
					s.Backdate(queue, schedule, by)
				},
			}
		},
		Features: queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Release: true},
	})
}

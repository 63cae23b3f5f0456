package postgres_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
)

// restless is a server whose clock is set back, by up to two seconds, and on again, several times a
// second. Rows that were written before wait as much longer, and no more.
func restless(t *testing.T) *testserver.Postgres {
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	server := testserver.StartPostgresWithClock(t)
	random := testseed.New(t.Name(), 0)
	stop, stopped := make(chan struct{}), sync.WaitGroup{}
	stopped.Go(func() {
		for tick := time.NewTicker(150 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				if err := server.SetClock(-time.Duration(random.Int64N(int64(2 * time.Second)))); err != nil {
					t.Error(err)
				}
			}
		}
	})
	t.Cleanup(func() { close(stop); stopped.Wait() })
	return server
}

// inTime skips cases that measure times by the clock.
func inTime(t testing.TB) {
	for _, c := range []string{"/Part/OfLinesOfOne", "/Replay/ByTime", "/Status/Lease", "/Retry/Backoff", "/Schedule/SkipsADuplicate"} {
		if strings.HasSuffix(t.Name(), c) {
			t.Skip("it measures time by the clock")
		}
	}
}

func TestStoreWithARestlessClock(t *testing.T) {
	t.Parallel()
	server := restless(t)
	migrated := postgrestest.OnServer(server.URL)
	open := func(t testing.TB, database func(testing.TB) string) storetest.Instance {
		inTime(t)
		return openInstance(t, database(t), small)
	}
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) storetest.Instance {
			return open(t, func(t testing.TB) string { return testserver.Database(t, server.URL) })
		},
		OpenCreated: func(t testing.TB) storetest.Instance { return created(t, open(t, migrated)) },
		Features:    storetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Outage: true, SmallPieces: true},
		Only:        storetest.RestlessClock,
	})
}

func TestQueueWithARestlessClock(t *testing.T) {
	t.Parallel()
	migrated := postgrestest.OnServer(restless(t).URL)
	queuetest.Run(t, queuetest.Harness{
		Open: func(t testing.TB) queuetest.Instance {
			inTime(t)
			return queueInstanceOn(t, migrated(t), small)
		},
		Features: queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Options: true, Unique: true, Barriers: true},
		Only:     queuetest.RestlessClock,
	})
}

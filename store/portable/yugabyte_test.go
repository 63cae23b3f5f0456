package portable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// simulated leads through a simulator of YugabyteDB that takes no time.
func simulated(t testing.TB, direct string) *wire.Yugabyte {
	y, end, err := wire.NewYugabyte(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	y.Sleep = func(time.Duration) {}
	return y
}

func skipUnlessSimulated(t *testing.T) {
	server := testserver.PostgresURL(t)
	skipPooled(t, server, "another proxy is one too many")
	if e := engine(t, server); e != "PostgreSQL" {
		t.Skip("the simulator does not go with", e)
	}
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if version := conn.PgConn().ParameterStatus("server_version"); strings.HasPrefix(version, "14.") {
		t.Skip("the simulator needs PostgreSQL 15 or later, this is", version) // for pg_stat_force_next_flush
	}
}

// On a simulator of YugabyteDB everything goes as it does elsewhere, with that dialect: claims take turns, and no statement counts on what is refused
// there. The long form has all cases.
func TestYugabyteSimulator(t *testing.T) {
	t.Parallel()
	skipUnlessSimulated(t)
	through := func(t testing.TB, direct string) string { return simulated(t, direct).URL }
	store, queue := outboxes(through), queues(through)
	store.Only, queue.Only = storetest.Pooled, queuetest.Pooled
	t.Run("Store", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, store)
	})
	t.Run("Queue", func(t *testing.T) {
		t.Parallel()
		queuetest.Run(t, queue)
	})
}

// The invariants of the queue in YugabyteDB's Jepsen suite (https://github.com/yugabyte/jepsen/blob/master/yugabyte/src/yugabyte/queue.clj), which Load of
// queuetest tests on every store. No job is claimed twice, and each that was enqueued is claimed in the end. Here statements are refused with each of
// YugabyteDB's errors, connections are lost and nodes are killed, one isolation level after the other.
func TestYugabyteNemesis(t *testing.T) {
	t.Parallel()
	skipUnlessSimulated(t)
	for part, serializable := range []bool{false, true} {
		t.Run(fmt.Sprintf("serializable %v", serializable), func(t *testing.T) {
			t.Parallel()
			const producers, workers = 2, 4
			each := testseed.Steps(60)
			y := simulated(t, database(t))
			y.Serializable = serializable
			stores := []*portable.Store{openStore(t, y.URL, portable.Options{}), openStore(t, y.URL, portable.Options{})}
			if err := stores[0].CreateQueue(t.Context(), "jobs", penstock.FIFO); err != nil {
				t.Fatal(err)
			}
			for _, s := range stores { // what a store asks once it has asked
				if _, err := s.DriverQueue("jobs").Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			rnd, trips := testseed.New(t.Name(), part), 0
			killed := 0
			y.Decide(func([]byte) wire.Fault { // one after another
				if trips++; trips%40 == 0 {
					killed += y.KillNode(rnd.IntN(3))
				}
				return wire.Some(rnd, faults...)
			})
			var mu sync.Mutex
			claimed := map[string]int64{} // by payload: its lease
			var done atomic.Int64
			err := suite.Concurrently(producers+workers, func(i int) error {
				q := stores[i%2].DriverQueue("jobs")
				if i < producers {
					for n := range each {
						if err := again(t.Context(), func() error {
							_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: fmt.Append(nil, i, "-", n)})
							return err
						}); err != nil {
							return err
						}
					}
					return nil
				}
				for int(done.Load()) < producers*each && t.Context().Err() == nil {
					jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1 + i%3, Lease: time.Hour})
					if err != nil {
						continue // whatever it has claimed, the next claim of this process gives back
					}
					for _, j := range jobs {
						mu.Lock()
						other := claimed[string(j.Payload)]
						claimed[string(j.Payload)] = j.Lease
						mu.Unlock()
						if other != 0 {
							return fmt.Errorf("job %s was claimed twice, by leases %d and %d, attempt %d", j.Payload, other, j.Lease, j.Attempt)
						}
						if err := again(t.Context(), func() error {
							_, err := q.Ack(t.Context(), j.Lease)
							return err
						}); err != nil {
							return err
						}
						done.Add(1)
					}
				}
				return t.Context().Err()
			})
			if err != nil {
				t.Error(err)
			}
			if len(claimed) != producers*each {
				t.Errorf("%d jobs were claimed, want %d", len(claimed), producers*each)
			}
			t.Logf("%d refused, %d lost before and %d after, %d sessions killed", y.Happened(wire.Refuse), y.Happened(wire.CutBefore), y.Happened(wire.CutAfter), killed)
			if killed == 0 || y.Happened(wire.Refuse) == 0 || y.Happened(wire.CutAfter) == 0 {
				t.Error("nothing was injected")
			}
		})
	}
}

// again makes a call again that found no connection: nothing has happened then.
func again(ctx context.Context, call func() error) (err error) {
	for ctx.Err() == nil {
		var none *pgconn.ConnectError
		if err = call(); !errors.As(err, &none) {
			return err
		}
	}
	return ctx.Err()
}

package portable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/endedtest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/portable"
)

// losing is a fixture whose store loses its connection once, in the first round trip that has a text in it.
type losing struct {
	*fixture
	p    *wireProxy
	lost *portable.Store
	q    driver.Queue
}

func newLosing(t *testing.T) *losing {
	l := &losing{fixture: newFixture(t, portable.Options{}), p: &wireProxy{let: make(chan struct{}), done: make(chan struct{})}}
	l.must(l.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	l.lost = openStore(t, l.p.through(t, l.url), portable.Options{})
	l.q = l.lost.Queue("jobs")
	return l
}

func (l *losing) once(f fault, text string, then func(trip []byte)) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	lost := false
	l.p.decide = func(trip []byte) fault {
		if !lost && bytes.Contains(trip, []byte(text)) {
			lost = true
			return f
		}
		if lost && then != nil {
			then(trip)
		}
		return pass
	}
}

// count is the first column of the first row.
func (l *losing) count(sql string) (n int) {
	l.Helper()
	conn, err := pgx.Connect(context.Background(), l.url)
	l.must(err)
	defer func() { _ = conn.Close(context.Background()) }()
	l.must(conn.QueryRow(context.Background(), sql).Scan(&n))
	return n
}

// happens has what was sent late arrive.
func (l *losing) happens(f fault) {
	if f == cutLate {
		close(l.p.let)
		<-l.p.done
	}
}

var cuts = map[string]fault{"before": cutBefore, "after": cutAfter, "late": cutLate}

// What the store itself publishes is there once, wherever its connection was lost: before the server saw it, after it had done it, or
// before it did it after all.
func TestPublishIsOnce(t *testing.T) {
	t.Parallel()
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosing(t)
			msgs := []penstock.Message{{Key: "k", Payload: []byte("1")}, {Payload: []byte("2")}}
			l.must(l.lost.Publish(t.Context(), "orders", msgs...)) // the driver knows the statements now
			l.once(cut, "insert into \"penstock_portable\".\"outbox_orders\"", nil)
			l.must(l.lost.Publish(t.Context(), "orders", msgs...))
			l.happens(cut)
			if n := l.count(`select count(*) from penstock_portable.outbox_orders`); n != 4 {
				t.Errorf("%d messages are there, want 4", n)
			}
			if n := l.lost.Retries()["unknown"]; n != 1 {
				t.Errorf("looked up %d times, want once", n)
			}
			for range 3 {
				l.must(l.lost.Publish(t.Context(), "orders", msgs...))
			}
			if n := l.count(`select count(*) from penstock_portable.attempts where not given_up`); n != 1 {
				t.Errorf("%d attempts have rows, want that of the last", n)
			}
		})
	}
}

// A message that was carried off before it was looked up is not published again.
func TestPublishIsOnceThoughCarriedOff(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	l.must(l.lost.Publish(t.Context(), "orders", penstock.Message{}))
	l.once(cutAfter, "insert into \"penstock_portable\".\"outbox_orders\"", func(trip []byte) {
		if bytes.Contains(trip, []byte("given_up")) {
			exec(t, l.url, "delete from penstock_portable.outbox_orders")
		}
	})
	l.must(l.lost.Publish(t.Context(), "orders", penstock.Message{}))
	if n := l.count(`select count(*) from penstock_portable.outbox_orders`); n != 0 {
		t.Errorf("%d messages came again", n)
	}
}

// The same of jobs, whose numbers are told; with dedup keys, too, where the transaction has several round trips.
func TestEnqueueIsOnce(t *testing.T) {
	t.Parallel()
	for name, cut := range cuts {
		for what, lose := range map[string]string{"plain": "insert into \"penstock_portable\".\"queue_jobs\"", "dedup": "commit"} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				l := newLosing(t)
				jobs := func(n int) (all []penstock.NewJob) {
					for i := range 3 {
						j := penstock.NewJob{Payload: fmt.Appendf(nil, "%d%d", n, i)}
						if what == "dedup" {
							j.DedupKey = fmt.Sprint(n, "-", i/2)
						}
						all = append(all, j)
					}
					return all
				}
				want := map[string]int{"plain": 6, "dedup": 4}[what]
				_, err := l.q.Enqueue(t.Context(), jobs(1)...)
				l.must(err)
				under := cut == cutLate && what == "dedup" // the transaction is under way while it is looked up, and commits then
				l.once(cut, lose, func(trip []byte) {
					if under && bytes.Contains(trip, []byte("given_up")) {
						under = false
						close(l.p.let)
					}
				})
				made, err := l.q.Enqueue(t.Context(), jobs(2)...)
				l.must(err)
				if what == "plain" {
					l.happens(cut)
				}
				if n := l.count(`select count(*) from penstock_portable.queue_jobs`); n != want {
					t.Errorf("%d jobs are there, want %d", n, want)
				}
				for i, m := range made {
					if n := l.count(fmt.Sprintf(`select count(*) from penstock_portable.queue_jobs where seq = %d and payload = '2%d'`, m.ID, i)); n == 0 != m.Deduplicated {
						t.Errorf("job %d has the number %d, deduplicated %v; %d have it", i, m.ID, m.Deduplicated, n)
					}
				}
				if n := l.lost.Retries()["unknown"]; n != 1 {
					t.Errorf("looked up %d times, want once", n)
				}
			})
		}
	}
}

// The same by chance, many times, with what is lost while it is looked up.
func TestOwnWritesAreOnce(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	l := newLosing(t)
	rnd := testseed.New(t.Name(), 0)
	n := testseed.Steps(100)
	for i := range n {
		if i == 1 { // what is asked once, of the schema and the queue, was asked
			l.p.mu.Lock()
			l.p.decide = func([]byte) fault { return someFault(rnd) }
			l.p.mu.Unlock()
		}
		payload := fmt.Append(nil, i)
		l.must(again(func() error { return l.lost.Publish(t.Context(), "orders", penstock.Message{Payload: payload}) }))
		l.must(again(func() error {
			_, err := l.q.Enqueue(t.Context(), penstock.NewJob{Payload: payload})
			return err
		}))
	}
	for _, table := range []string{"outbox_orders", "queue_jobs"} {
		if rows, different := l.count(`select count(*) from penstock_portable.`+table), l.count(`select count(distinct payload) from penstock_portable.`+table); rows != n || different != n {
			t.Errorf("%s has %d rows with %d payloads, want %d", table, rows, different, n)
		}
	}
	t.Logf("run again %v; %d refused, %d cut before, %d after", l.lost.Retries(), l.p.faults[refuse].Load(), l.p.faults[cutBefore].Load(), l.p.faults[cutAfter].Load())
}

// again calls once more where nobody could be connected to: then nothing has happened.
func again(call func() error) (err error) {
	for range 100 {
		var none *pgconn.ConnectError
		if err = call(); !errors.As(err, &none) {
			break
		}
	}
	return err
}

// What a claim has leased whose answer was lost is claimed by the same call, and not left until the leases end; also if jobs end in it.
func TestClaimIsOnce(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]fault{"before": cutBefore, "after": cutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosing(t)
			_, err := l.q.Enqueue(t.Context(), make([]penstock.NewJob, 9)...)
			l.must(err)
			claim := func(acks ...penstock.Job) ([]penstock.Job, error) {
				var leases []int64
				for _, j := range acks {
					leases = append(leases, j.Lease)
				}
				_, jobs, err := l.q.(driver.AckClaimer).AckClaim(t.Context(), leases, driver.Claim{Jobs: 3, Lease: time.Hour})
				return jobs, err
			}
			leases := func(want int) {
				t.Helper()
				if n := l.count(`select count(*) from penstock_portable.leases`); n != want {
					t.Errorf("%d jobs are leased, want %d", n, want)
				}
			}
			first, err := claim()
			l.must(err)
			l.once(cut, "insert into \"penstock_portable\".leases", nil)
			second, err := claim()
			l.must(err)
			if len(second) != 3 || second[0].ID != first[2].ID+1 || second[0].Attempt != 1 {
				t.Errorf("claimed %+v after %+v", second, first)
			}
			leases(6)
			if n := l.lost.Retries()["unknown"]; n != 1 {
				t.Errorf("looked up %d times, want once", n)
			}
			l.once(cut, "insert into \"penstock_portable\".leases", nil)
			third, err := claim(first...)
			l.must(err)
			if len(third) != 3 || third[0].ID != second[2].ID+1 || third[0].Attempt != 1 {
				t.Errorf("claimed %+v after %+v", third, second)
			}
			leases(6)
		})
	}
}

// The same by chance, many times, with what is lost while it runs again.
func TestEndingIsOnceByChance(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	l := newLosing(t)
	rnd, faults := testseed.New(t.Name(), 0), testseed.New(t.Name(), 1)
	var jobs []penstock.Job
	dead, attempt := 0, 0
	for range testseed.Steps(150) {
		if len(jobs) == 0 && attempt == 0 {
			_, err := l.store.Queue("jobs").Enqueue(t.Context(), penstock.NewJob{})
			l.must(err)
			attempt = 1
		}
		for len(jobs) == 0 {
			l.must(again(func() (err error) {
				jobs, err = l.q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
				return err
			}))
		}
		if jobs[0].Attempt != attempt {
			t.Fatalf("claimed %+v, want attempt %d", jobs[0], attempt)
		}
		lease, held := jobs[0].Lease, []int64{jobs[0].Lease}
		then := rnd.IntN(5)
		l.must(again(func() (err error) {
			switch then {
			case 0:
				held, err = l.q.Extend(t.Context(), time.Hour, lease)
			case 1:
				held, err = l.q.(driver.Releaser).Release(t.Context(), 0, lease)
			case 2:
				_, err = l.q.Retry(t.Context(), lease, 0, "broken")
			case 3:
				held, err = l.q.Ack(t.Context(), lease)
			case 4:
				err = l.q.DeadLetter(t.Context(), lease, "broken")
			}
			return err
		}))
		if !slices.Equal(held, []int64{lease}) {
			t.Fatalf("call %d of lease %d held %v", then, lease, held)
		}
		if then > 0 {
			jobs = nil
		}
		switch then {
		case 2:
			attempt++
		case 3:
			attempt = 0
		case 4:
			attempt = 0
			dead++
		}
		l.p.mu.Lock() // what is asked once, of the schema and the queue, was asked
		l.p.decide = func([]byte) fault { return someFault(faults) }
		l.p.mu.Unlock()
	}
	if n := l.count(`select count(*) from penstock_portable.dead_jobs`); n != dead {
		t.Errorf("%d dead letters, want %d", n, dead)
	}
	t.Logf("run again %v; %d refused, %d cut before, %d after", l.lost.Retries(), l.p.faults[refuse].Load(), l.p.faults[cutBefore].Load(), l.p.faults[cutAfter].Load())
}

// A server that does not let anybody in for a while, as one that starts again, is waited for: nobody knows before what has happened.
func TestEndingWaitsForTheServer(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	_, err := l.q.Enqueue(t.Context(), penstock.NewJob{}, penstock.NewJob{})
	l.must(err)
	jobs, err := l.q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})
	l.must(err)
	_, err = l.q.Ack(t.Context(), jobs[0].Lease)
	l.must(err)
	l.p.mu.Lock()
	l.p.decide = func(trip []byte) fault {
		if bytes.Contains(trip, []byte("delete from")) {
			l.p.closed.Store(3)
			l.p.decide = nil
			return cutAfter
		}
		return pass
	}
	l.p.mu.Unlock()
	held, err := l.q.Ack(t.Context(), jobs[1].Lease)
	l.must(err)
	if len(held) != 1 || l.p.closed.Load() >= 0 {
		t.Errorf("held %v, want one; %d connections are to come to nothing still", held, l.p.closed.Load())
	}
}

// What processes that died have left is taken away a day later, not before.
func TestAttemptsOfTheDead(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	exec(t, l.url, "insert into penstock_portable.attempts (attempt, at) values (1, now() - interval '2 days'), (2, now() - interval '2 hours')")
	_, err := l.q.Enqueue(t.Context(), penstock.NewJob{})
	l.must(err)
	exec(t, l.url, "insert into penstock_portable.attempts (attempt, given_up, at) values (-1, true, now() - interval '2 days')")
	l.must(l.store.Queue("jobs").Maintain(t.Context())) // of another store, which looks for them, too
	if n := l.count("select sum(attempt) from penstock_portable.attempts where attempt in (-1, 1, 2)"); n != 2 {
		t.Errorf("the attempts left are %d, want the one of two hours ago", n)
	}
}

// What a worker ends, or whose lease it extends, is so once, and it learns what was, wherever its connection was lost.
func TestEndingIsOnce(t *testing.T) {
	t.Parallel()
	endedtest.Run(t, func(call string) []endedtest.Trip {
		switch call {
		case "Ack", "AckClaim":
			return []endedtest.Trip{{Text: `delete from "penstock_portable"."queue_jobs"`}}
		case "Extend":
			return []endedtest.Trip{{Text: "set until"}}
		}
		return []endedtest.Trip{{Text: `delete from "penstock_portable".leases`, Under: true, IfHeld: true}, {Text: "commit", Under: true}}
	}, func(t *testing.T, cut string) *endedtest.Fixture {
		l := newLosing(t)
		let := sync.OnceFunc(func() { close(l.p.let) })
		t.Cleanup(let)
		return &endedtest.Fixture{Queue: l.q, Direct: l.store, Name: "jobs",
			Lose: func(trip endedtest.Trip) {
				l.once(cuts[cut], trip.Text, func([]byte) {
					if cut == "late" && trip.Under {
						let()
					}
				})
			},
			Arrive: func() {
				if cut == "late" {
					let()
					<-l.p.done
				}
			},
			Looked: func() int64 { return l.lost.Retries()["unknown"] },
		}
	})
}

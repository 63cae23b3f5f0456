package mysql_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/endedtest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// losing has a store that loses its connection once, in the first statement that has a text in it.
type losing struct {
	testing.TB
	p      *wireProxy
	app    *sql.DB
	s      *mysql.Store
	direct *mysql.Store
	q      driver.Queue
}

func newLosing(t *testing.T) *losing {
	url := testserver.MariaDBDatabase(t)
	schema, host := databaseOf(t, url)
	l := &losing{TB: t, p: &wireProxy{let: make(chan struct{}), done: make(chan struct{})}, app: application(t, url)}
	l.s = openStore(t, "mysql://root@"+l.p.through(t, host)+"/", mysql.Options{Schema: schema})
	must(t, l.s.Migrate(t.Context()), l.s.CreateOutbox(t.Context(), "orders"), l.s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	l.direct = openStore(t, url, mysql.Options{Schema: schema})
	l.q = l.s.Queue("jobs")
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

func (l *losing) count(query string, want int) {
	l.Helper()
	var n int
	must(l, l.app.QueryRow(query).Scan(&n))
	if n != want {
		l.Errorf("%s: %d, want %d", query, n, want)
	}
}

func (l *losing) looked(want int64) {
	l.Helper()
	if n := l.s.Retries()["unknown"]; n != want {
		l.Errorf("looked up %d times, want %d", n, want)
	}
}

var cuts = map[string]fault{"before": cutBefore, "after": cutAfter, "late": cutLate}

// What the store itself publishes is there once, wherever its connection was lost: before the server saw it, after it had done it, or
// before it did it after all. It may have been carried off before it is looked up.
func TestPublishIsOnce(t *testing.T) {
	t.Parallel()
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosing(t)
			msgs := []penstock.Message{{Key: "k", Payload: []byte("1")}, {Payload: []byte("2")}}
			must(t, l.s.Publish(t.Context(), "orders", msgs...))
			l.once(cut, "`outbox_orders`", func(trip []byte) {
				if cut == cutAfter && bytes.Contains(trip, []byte("given_up")) {
					exec(t, l.app, "delete from outbox_orders where payload = '1'")
				}
			})
			must(t, l.s.Publish(t.Context(), "orders", msgs...))
			if cut == cutLate {
				close(l.p.let)
				<-l.p.done
			}
			l.count("select count(*) from outbox_orders", map[bool]int{false: 4, true: 2}[cut == cutAfter])
			l.looked(1)
			for range 3 {
				must(t, l.s.Publish(t.Context(), "orders", msgs...))
			}
			l.count("select count(*) from attempts where not given_up", 1)
		})
	}
}

// The same of jobs, whose numbers are told; the connection may be lost with the jobs, or with the commit.
func TestEnqueueIsOnce(t *testing.T) {
	t.Parallel()
	for name, cut := range cuts {
		for _, lose := range []string{"insert into `", "commit"} {
			for _, dedup := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", lose[:6], "/", dedup), func(t *testing.T) {
					t.Parallel()
					l := newLosing(t)
					jobs := func(n int) (all []penstock.NewJob) {
						for i := range 3 {
							j := penstock.NewJob{Payload: fmt.Appendf(nil, "%d%d", n, i)}
							if dedup {
								j.DedupKey = fmt.Sprint(n, "-", i/2)
							}
							all = append(all, j)
						}
						return all
					}
					_, err := l.q.Enqueue(t.Context(), jobs(1)...)
					must(t, err)
					under := cut == cutLate && lose == "commit" // the transaction is under way while it is looked up, and commits then
					waits := under
					l.once(cut, lose, func(trip []byte) {
						if under && bytes.Contains(trip, []byte("given_up")) {
							under = false
							close(l.p.let)
						}
					})
					made, err := l.q.Enqueue(t.Context(), jobs(2)...)
					must(t, err)
					if cut == cutLate && !waits {
						close(l.p.let)
					}
					if cut == cutLate {
						<-l.p.done
					}
					l.count("select count(*) from queue_jobs", map[bool]int{false: 6, true: 4}[dedup])
					for i, m := range made {
						l.count(fmt.Sprintf("select count(*) from queue_jobs where seq = %d and payload = '2%d'", m.ID, i), map[bool]int{false: 1, true: 0}[m.Deduplicated])
					}
					l.looked(1)
				})
			}
		}
	}
}

// What a claim has leased whose answer was lost is claimed by the same call, and not left until the leases end; also if jobs end in it.
func TestClaimIsOnce(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]fault{"before": cutBefore, "after": cutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosing(t)
			_, err := l.q.Enqueue(t.Context(), make([]penstock.NewJob, 9)...)
			must(t, err)
			claim := func(acks ...penstock.Job) ([]penstock.Job, error) {
				var leases []int64
				for _, j := range acks {
					leases = append(leases, j.Lease)
				}
				_, jobs, err := l.q.(driver.AckClaimer).AckClaim(t.Context(), leases, driver.Claim{Jobs: 3, Lease: time.Hour})
				return jobs, err
			}
			first, err := claim()
			must(t, err)
			l.once(cut, ".leases (", nil)
			second, err := claim()
			must(t, err)
			if len(second) != 3 || second[0].ID != first[2].ID+1 || second[0].Attempt != 1 {
				t.Errorf("claimed %+v after %+v", second, first)
			}
			l.count("select count(*) from leases", 6)
			l.looked(1)
			l.once(cut, ".leases (", nil)
			third, err := claim(first...)
			must(t, err)
			if len(third) != 3 || third[0].ID != second[2].ID+1 || third[0].Attempt != 1 {
				t.Errorf("claimed %+v after %+v", third, second)
			}
			l.count("select count(*) from leases", 6)
		})
	}
}

// A job that is cancelled between the two round trips of a claim is not handed over.
func TestCancelledWhileClaimed(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	made, err := l.q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("1")}, penstock.NewJob{Payload: []byte("2")})
	must(t, err)
	l.p.mu.Lock()
	l.p.decide = func(trip []byte) fault {
		if bytes.Contains(trip, []byte(".leases (")) {
			exec(t, l.app, fmt.Sprint("delete from queue_jobs where seq = ", made[0].ID))
		}
		return pass
	}
	l.p.mu.Unlock()
	jobs, err := l.q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})
	if err != nil || len(jobs) != 1 || jobs[0].ID != made[1].ID || string(jobs[0].Payload) != "2" {
		t.Errorf("claimed %+v, %v, want the second job", jobs, err)
	}
}

// What a relay does all the time is one round trip each, an enqueue is two.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	src := reader(t, l.s, "shipped")
	trips := func(what string, want int64, errs ...error) {
		t.Helper()
		must(t, errs...)
		if n := l.p.trips.Swap(0); n != want {
			t.Errorf("%s took %d round trips, want %d", what, n, want)
		}
	}
	_, err := l.q.Enqueue(t.Context(), penstock.NewJob{})
	must(t, err)
	l.p.trips.Store(0)
	trips("Publish", 1, l.s.Publish(t.Context(), "shipped", penstock.Message{Key: "k"}))
	b, err := src.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
	trips("Fetch", 1, err)
	trips("Settle", 1, src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
	_, err = l.q.Enqueue(t.Context(), make([]penstock.NewJob, 3)...)
	trips("Enqueue", 2, err)
	jobs, err := l.q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})
	trips("Claim", 2, err)
	_, err = l.q.Ack(t.Context(), jobs[0].Lease)
	trips("Ack", 1, err)
}

// What processes that died have left is taken away a day later, not before.
func TestAttemptsOfTheDead(t *testing.T) {
	t.Parallel()
	l := newLosing(t)
	exec(t, l.app, "insert into attempts (attempt, at) values (1, utc_timestamp() - interval 2 day), (2, utc_timestamp() - interval 2 hour)")
	_, err := l.q.Enqueue(t.Context(), penstock.NewJob{})
	must(t, err)
	l.count("select sum(attempt) from attempts where attempt in (1, 2)", 2)
}

// What a worker ends, or whose lease it extends, is so once, and it learns what was, wherever its connection was lost.
func TestEndingIsOnce(t *testing.T) {
	t.Parallel()
	endedtest.Run(t, func(call string) []endedtest.Trip {
		if call == "Ack" || call == "Extend" {
			return []endedtest.Trip{{Text: "commit"}}
		}
		return []endedtest.Trip{{Text: "begin"}, {Text: "commit", Under: true}}
	}, func(t *testing.T, cut string) *endedtest.Fixture {
		l := newLosing(t)
		let := sync.OnceFunc(func() { close(l.p.let) })
		t.Cleanup(let)
		return &endedtest.Fixture{Queue: l.q, Direct: l.direct, Name: "jobs",
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
			Looked: func() int64 { return l.s.Retries()["unknown"] },
		}
	})
}

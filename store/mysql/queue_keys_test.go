package mysql_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/mysql"
)

// A claim that looks at many jobs of a key reads a few rows for each, not all of the key.
func TestJobsOfAKeyAreReadOnce(t *testing.T) {
	t.Parallel()
	const waiting = 200
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := testserver.MariaDBDatabase(t)
			app := application(t, url)
			schema, _ := databaseOf(t, url)
			s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
			must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
			jobs := make([]penstock.NewJob, waiting)
			for i := range jobs {
				jobs[i].Key = "k"
			}
			q := s.Queue("jobs")
			_, err := q.Enqueue(t.Context(), jobs...)
			must(t, err)
			before := rowsRead(t, app, schema)
			got, err := q.Claim(t.Context(), driver.Claim{Jobs: waiting, Lease: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %d jobs, %v", len(got), err)
			}
			if n := rowsRead(t, app, schema) - before; n < waiting || n > 20*waiting {
				t.Errorf("a claim beside %d jobs of a key reads %.0f rows", waiting, n)
			}
		})
	}
}

// The first jobs of busy keys are looked up: those that wait behind them are not read again by each claim, however many they are. A claim is two round trips
// all the same.
func TestJobsBehindTheFirstOfTheirKeyArePassedOver(t *testing.T) {
	t.Parallel()
	const waiting, keys, most = 2000, 5, 100
	for _, engine := range engines(t) {
		for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
			t.Run(engine+" "+string(order), func(t *testing.T) {
				t.Parallel()
				url, p := testserver.MariaDBDatabase(t), wire.New()
				app := application(t, url)
				schema, host := databaseOf(t, url)
				s := openStore(t, "mysql://root@"+p.MySQL(t, host)+"/", mysql.Options{Schema: schema, Engine: engine, LookAgain: time.Hour, Sweep: time.Hour})
				must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", order))
				jobs := make([]penstock.NewJob, waiting)
				for i := range jobs {
					jobs[i].Key = strconv.Itoa(i % keys)
				}
				q := s.Queue("jobs")
				made, err := q.Enqueue(t.Context(), jobs...)
				must(t, err)
				exec(t, app, "update queue_jobs set ts = ts - interval 1 minute, created_at = created_at - interval 1 minute") // those of just now are looked at again
				claim := func() []penstock.Job {
					got, err := q.Claim(t.Context(), driver.Claim{Jobs: 2 * keys, Lease: time.Hour})
					must(t, err)
					return got
				}
				running := claim()
				if len(running) != keys || len(claim()) > 0 { // the second has seen all that wait
					t.Fatalf("claimed %d jobs, want one of each of %d keys", len(running), keys)
				}
				for i, j := range running {
					_, err := q.Ack(t.Context(), j.Lease)
					must(t, err)
					rows, trips := rowsRead(t, app, schema), p.Trips.Load()
					got := claim()
					if len(got) != 1 || got[0].Key != j.Key || got[0].ID != j.ID+made[keys].ID-made[0].ID {
						t.Fatalf("claimed %v, want the next job of the key %s", got, j.Key)
					}
					rows, trips = rowsRead(t, app, schema)-rows, p.Trips.Load()-trips
					if rows > most || trips > 2 {
						t.Errorf("claim %d beside %d jobs that wait reads %.0f rows in %d round trips, want %d and 2 at most", i, waiting, rows, trips, most)
					}
				}
			})
		}
	}
}

// Jobs of a key run in the order in which they were enqueued, whatever their priorities and however often they come back. No claim looks again where
// it has passed over them.
func TestKeysKeepTheirOrderWithoutAnotherLook(t *testing.T) {
	t.Parallel()
	for _, engine := range engines(t) {
		for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
			t.Run(engine+" "+string(order), func(t *testing.T) {
				t.Parallel()
				url, rnd := testserver.MariaDBDatabase(t), testseed.New(t.Name(), 0)
				schema, _ := databaseOf(t, url)
				opts := mysql.Options{Schema: schema, Engine: engine, LookAgain: time.Hour, Sweep: time.Hour}
				s := openStore(t, url, opts)
				must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", order))
				processes, groups := []*mysql.Queue{s.Queue("jobs"), openStore(t, url, opts).Queue("jobs")}, []string{"", "g"}
				next, running, left := map[string][]int64{}, []penstock.Job{}, 0
				enqueue := func() {
					q, jobs := processes[0], make([]penstock.NewJob, rnd.IntN(60))
					for i := range jobs {
						jobs[i] = penstock.NewJob{Group: groups[rnd.IntN(len(groups))], Priority: rnd.IntN(3), Key: strconv.Itoa(rnd.IntN(6))}
					}
					made, err := q.Enqueue(t.Context(), jobs...)
					must(t, err)
					for i, m := range made {
						next[jobs[i].Key] = append(next[jobs[i].Key], m.ID)
					}
					left += len(jobs)
				}
				for step := 0; step < testseed.Steps(200) || left > 0; step++ {
					if rnd.IntN(10) == 0 && step < testseed.Steps(200) {
						enqueue()
					}
					found := 0
					q := processes[rnd.IntN(len(processes))]
					for _, group := range groups {
						jobs, err := q.Claim(t.Context(), driver.Claim{Group: group, Jobs: 1 + rnd.IntN(8), Lease: time.Hour})
						must(t, err)
						for _, j := range jobs {
							if j.ID != next[j.Key][0] {
								t.Fatalf("claimed the job %d of the key %s, want %d", j.ID, j.Key, next[j.Key][0])
							}
						}
						running, found = append(running, jobs...), found+len(jobs)
					}
					if len(running) == 0 && left > 0 {
						t.Fatalf("no job may be had of %d", left)
					}
					for range min(len(running), 1+rnd.IntN(4)) {
						i := rnd.IntN(len(running))
						j := running[i]
						running = slices.Delete(running, i, i+1)
						var err error
						switch rnd.IntN(6) {
						case 0:
							_, err = q.Retry(t.Context(), j.Lease, 0, "no")
						case 1:
							_, err = q.Release(t.Context(), 0, j.Lease)
						default:
							_, err = q.Ack(t.Context(), j.Lease)
							next[j.Key], left = next[j.Key][1:], left-1
						}
						must(t, err)
					}
				}
			})
		}
	}
}

// A key is looked up for as long as jobs are left of it that were passed over, whichever process takes them.
func TestKeysWhoseJobsAreTakenAreNotLookedUp(t *testing.T) {
	t.Parallel()
	const keys, most = 200, 100
	for _, engine := range engines(t) {
		for taker, name := range []string{"taken by this process", "taken by another"} {
			t.Run(engine+" "+name, func(t *testing.T) {
				t.Parallel()
				url := testserver.MariaDBDatabase(t)
				app := application(t, url)
				schema, _ := databaseOf(t, url)
				opts := mysql.Options{Schema: schema, Engine: engine, LookAgain: time.Hour, Sweep: time.Hour}
				s := openStore(t, url, opts)
				must(t, s.Migrate(t.Context()), s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
				q := s.Queue("jobs")
				processes := []*mysql.Queue{q, openStore(t, url, opts).Queue("jobs")}
				jobs := make([]penstock.NewJob, keys)
				for i := range jobs {
					jobs[i].Key = strconv.Itoa(i)
				}
				enqueue := func(jobs ...penstock.NewJob) {
					_, err := q.Enqueue(t.Context(), jobs...)
					must(t, err)
				}
				claim := func(q *mysql.Queue, most, want int) (leases []int64) {
					got, err := q.Claim(t.Context(), driver.Claim{Jobs: most, Lease: time.Hour})
					must(t, err)
					for _, j := range got {
						leases = append(leases, j.Lease)
					}
					if len(got) != want {
						t.Fatalf("claimed %d jobs, want %d", len(got), want)
					}
					return leases
				}
				ack := func(q *mysql.Queue, leases []int64) {
					_, err := q.Ack(t.Context(), leases...)
					must(t, err)
				}
				enqueue(slices.Concat(jobs, jobs)...)
				first := claim(q, keys, keys)
				claim(q, 1, 0) // it has seen all that wait
				ack(q, first)
				ack(q, claim(processes[taker], keys, keys))
				enqueue(jobs...)
				if taker > 0 {
					claim(q, 1, 1) // it sees that those before are gone
				}
				rows := rowsRead(t, app, schema)
				claim(q, 1, 1)
				if rows = rowsRead(t, app, schema) - rows; rows > most {
					t.Errorf("a claim reads %.0f rows, want %d at most", rows, most)
				}
			})
		}
	}
}

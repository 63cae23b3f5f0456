package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/mysql"
)

// A queue of two processes. A claim of one of them, slow, stops when it has looked and taken nothing yet.
type beside struct {
	testing.TB
	app         *sql.DB
	store       *mysql.Store
	slow, other *mysql.Queue
	stopped     chan struct{} // closed when the claim has stopped
	goOn        chan struct{}
	taking      atomic.Int32 // how often the slow process asked for jobs
}

func newBeside(t *testing.T) *beside {
	t.Parallel()
	has(t, "InnoDB")
	of := testserver.MariaDBDatabase(t)
	schema, host := databaseOf(t, of)
	opts, p := mysql.Options{Schema: schema, Engine: "InnoDB", LookAgain: time.Nanosecond}, wire.New()
	b := &beside{TB: t, app: application(t, of), store: openStore(t, of, opts), stopped: make(chan struct{}), goOn: make(chan struct{})}
	must(t, b.store.Migrate(t.Context()), b.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	b.slow, b.other = openStore(t, "mysql://root@"+p.MySQL(t, host)+"/", opts).Queue("jobs"), openStore(t, of, opts).Queue("jobs")
	for _, q := range []*mysql.Queue{b.slow, b.other} { // which know then that claims run side by side
		if jobs := b.claim(q); len(jobs) > 0 {
			t.Fatalf("claimed %v", jobs)
		}
	}
	p.Decide(func(trip []byte) wire.Fault {
		if bytes.Contains(trip, []byte(".leases (")) && b.taking.Add(1) == 1 {
			close(b.stopped)
			<-b.goOn
		}
		return wire.Pass
	})
	return b
}

func (b *beside) enqueue(jobs ...penstock.NewJob) (ids []int64) {
	b.Helper()
	made, err := b.store.Queue("jobs").Enqueue(b.Context(), jobs...)
	must(b, err)
	for _, m := range made {
		ids = append(ids, m.ID)
	}
	return ids
}

func (b *beside) claim(q *mysql.Queue) []penstock.Job {
	b.Helper()
	jobs, err := q.Claim(b.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
	must(b, err)
	return jobs
}

// starts a claim, which stops.
func (b *beside) starts() (claimed chan []penstock.Job) {
	b.Helper()
	claimed = make(chan []penstock.Job, 1)
	go func() {
		jobs, err := b.slow.Claim(b.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
		if err != nil {
			b.Error(err)
		}
		claimed <- jobs
	}()
	<-b.stopped
	return claimed
}

// waiting counts the transactions of this test that wait for a lock.
func (b *beside) waiting() (n int) {
	b.Helper()
	time.Sleep(150 * time.Millisecond) // asked more often than every 100 ms MariaDB shows an old copy of who waits
	must(b, b.app.QueryRow("select count(*) from information_schema.innodb_trx x join information_schema.processlist p on p.id = x.trx_mysql_thread_id where x.trx_state = 'LOCK WAIT' and x.trx_query like concat('%', database(), '%')").Scan(&n))
	return n
}

// A claim that takes long holds up no claim of another process, and both get different jobs.
func TestClaimsOfProcessesRunSideBySide(t *testing.T) {
	b := newBeside(t)
	ids := b.enqueue(make([]penstock.NewJob, 20)...)
	first := b.starts()
	if jobs := b.claim(b.other); len(jobs) != 1 || jobs[0].ID != ids[0] {
		t.Fatalf("claimed %v, want the first job", jobs)
	}
	close(b.goOn)
	if jobs := <-first; len(jobs) != 1 || jobs[0].ID != ids[1] {
		t.Errorf("the claim that was stopped got %v, want the second job", jobs)
	}
	if n := b.taking.Load(); n != 1 {
		t.Error("the other claim waited until the server ended the transaction of the one that was stopped")
	}
}

// A job that another claim has locked is skipped.
func TestLockedJobIsSkipped(t *testing.T) {
	b := newBeside(t)
	ids := b.enqueue(make([]penstock.NewJob, 20)...)
	tx, err := b.app.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	var n int
	must(t, tx.QueryRow("select seq from queue_jobs where seq = ? for update", ids[0]).Scan(&n))
	if jobs := b.claim(b.other); len(jobs) != 1 || jobs[0].ID != ids[1] {
		t.Errorf("claimed %v, want the second job", jobs)
	}
}

// A lease that two processes end at once was held by one of them.
func TestTwoEndALease(t *testing.T) {
	b := newBeside(t)
	b.enqueue(penstock.NewJob{})
	lease := b.claim(b.other)[0].Lease
	tx, err := b.app.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	var n int
	must(t, tx.QueryRow("select seq from queue_jobs for update").Scan(&n))
	held := make(chan int, 2)
	for i, q := range []*mysql.Queue{b.slow, b.other} {
		go func() {
			leases, err := q.Ack(t.Context(), lease)
			if err != nil {
				t.Error(err)
			}
			held <- len(leases)
		}()
		for b.waiting() <= i { // the first one for the job, the second one for the first
		}
	}
	must(t, tx.Rollback())
	if n := <-held + <-held; n != 1 {
		t.Errorf("the lease was held %d times", n)
	}
}

// An ack locks leases in their order, whatever the order of the call: two that have leases in common wait for each other, and neither is a deadlock.
// It leaves nothing of its jobs, of one that was tried before and of one that was not.
func TestAckLocksLeasesInOrder(t *testing.T) {
	b := newBeside(t)
	b.enqueue(penstock.NewJob{}, penstock.NewJob{})
	_, err := b.other.Retry(t.Context(), b.claim(b.other)[0].Lease, 0, "no")
	must(t, err)
	leases := []int64{b.claim(b.other)[0].Lease, b.claim(b.other)[0].Lease}
	slices.Sort(leases)
	lock := func(lease int64) (*sql.Tx, error) {
		tx, err := b.app.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		must(t, err)
		var n int64
		return tx, tx.QueryRow("select lease from leases force index (leases_lease) where lease = ? for update nowait", lease).Scan(&n)
	}
	first, err := lock(leases[0])
	defer func() { _ = first.Rollback() }()
	must(t, err)
	held := make(chan int, 1)
	go func() {
		ended, err := b.other.Ack(t.Context(), leases[1], leases[0])
		if err != nil {
			t.Error(err)
		}
		held <- len(ended)
	}()
	for b.waiting() == 0 {
	}
	second, err := lock(leases[1])
	if err != nil {
		t.Errorf("the ack waits for the first lease, and has locked the second: %v", err)
	}
	must(t, second.Rollback(), first.Rollback())
	if n := <-held; n != 2 {
		t.Errorf("%d leases were held, want 2", n)
	}
	for _, table := range []string{"leases", "tries", "queue_jobs"} {
		var n int
		must(t, b.app.QueryRow("select count(*) from "+table).Scan(&n))
		if n != 0 {
			t.Errorf("%s has %d rows left", table, n)
		}
	}
}

// What excludes claims waits for those that are under way.
func TestWhatExcludesClaimsWaitsForThem(t *testing.T) {
	yes, one := true, 1
	for name, call := range map[string]func(ctx context.Context, s *mysql.Store, id int64) error{
		"pause": func(ctx context.Context, s *mysql.Store, _ int64) error {
			return s.SetQueue(ctx, "jobs", penstock.QueueSettings{Paused: &yes})
		},
		"limit": func(ctx context.Context, s *mysql.Store, _ int64) error {
			return s.SetQueue(ctx, "jobs", penstock.QueueSettings{MaxRunning: &one})
		},
		"cancel": func(ctx context.Context, s *mysql.Store, id int64) error {
			_, err := s.CancelJobs(ctx, "jobs", id)
			return err
		},
		"drop": func(ctx context.Context, s *mysql.Store, _ int64) error { return s.DropQueue(ctx, "jobs") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBeside(t)
			ids := b.enqueue(penstock.NewJob{}, penstock.NewJob{})
			first, done := b.starts(), make(chan error, 1)
			go func() { done <- call(t.Context(), b.store, ids[0]) }()
			for b.waiting() == 0 {
				select {
				case err := <-done:
					t.Fatalf("it did not wait for the claim: %v", err)
				default:
				}
			}
			close(b.goOn)
			if jobs := <-first; len(jobs) != 1 || jobs[0].ID != ids[0] {
				t.Fatalf("the claim got %v", jobs)
			}
			must(t, <-done)
			if name != "pause" && name != "limit" {
				return
			}
			if jobs := b.claim(b.other); len(jobs) > 0 {
				t.Errorf("a claim got %v", jobs)
			}
		})
	}
}

// Another claim is first while one looks: what it did with the job holds.
func TestAnotherClaimIsFirst(t *testing.T) {
	retry := func(b *beside, after time.Duration) {
		b.Helper()
		_, err := b.other.Retry(b.Context(), b.claim(b.other)[0].Lease, after, "no")
		must(b, err)
	}
	for name, meanwhile := range map[string]func(b *beside){
		"claimed":         func(b *beside) { b.claim(b.other) },
		"retried":         func(b *beside) { retry(b, time.Hour) },
		"retried at once": func(b *beside) { retry(b, 0) },
		"released": func(b *beside) {
			_, err := b.other.Release(b.Context(), time.Hour, b.claim(b.other)[0].Lease)
			must(b, err)
		},
		"done": func(b *beside) {
			_, err := b.other.Ack(b.Context(), b.claim(b.other)[0].Lease)
			must(b, err)
		},
		"dead": func(b *beside) { must(b, b.other.DeadLetter(b.Context(), b.claim(b.other)[0].Lease, "no")) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBeside(t)
			b.enqueue(penstock.NewJob{})
			claimed := b.starts()
			meanwhile(b)
			close(b.goOn)
			if jobs := <-claimed; len(jobs) > 0 && (name != "retried at once" || jobs[0].Attempt != 2) {
				t.Errorf("the claim that came later got the job %d, in its attempt %d", jobs[0].ID, jobs[0].Attempt)
			}
		})
	}
}

// Claims of jobs with keys take turns.
func TestClaimsOfKeysTakeTurns(t *testing.T) {
	b := newBeside(t)
	ids := b.enqueue(penstock.NewJob{}, penstock.NewJob{Key: "k"}, penstock.NewJob{Key: "k"})
	var got []int64
	for range 3 {
		for _, j := range b.claim(b.other) {
			got = append(got, j.ID)
		}
	}
	if len(got) != 2 || got[0] != ids[0] || got[1] != ids[1] {
		t.Errorf("claimed the jobs %d, want the first two", got)
	}
}

// MySQL takes no lock of a list in JSON, so such a statement names the tables that it locks. MariaDB does not mind either way, and the
// tests of every day run on it alone.
func TestListsAreNotLocked(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d statements, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for statement := range strings.SplitSeq(string(text), ";\n") {
			locks := strings.Contains(statement, "for update") || strings.Contains(statement, "in share mode")
			list := strings.Contains(statement, "json_table(") || strings.Contains(statement, "{these")
			if locks && list && !strings.Contains(statement, "for update /*!80001 of ") {
				t.Errorf("%s: write for update /*!80001 of TABLE */", file)
			}
		}
	}
}

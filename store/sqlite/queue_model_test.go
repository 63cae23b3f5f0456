package sqlite_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/sqlite"
)

// modelJob is a job as the model knows it.
type modelJob struct {
	id, seq    int64 // seq is its place in the queue; that of a dead letter that came back is new
	key, group string
	priority   int
	attempts   int // that failed
	limit      int
	state      string
	lease      int64
	began      bool // it ran and has not ended: its key is busy
}

// queueModel is the queue as it should be: a list and loops over it.
type queueModel struct {
	*testing.T
	rnd   *rand.Rand
	store *sqlite.Store
	q     driver.Queue
	app   *sql.DB
	lifo  bool
	jobs  []*modelJob
	seq   int64
}

// Random calls, and after each the queue has done what the model says: which
// jobs are claimed and in which order, exactly. Time passes by UPDATE.
func TestQueueAgainstModel(t *testing.T) {
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		t.Run(string(order), func(t *testing.T) {
			seed := testseed.Seed()
			t.Logf("PENSTOCK_SEED=%d", seed)
			path, s, q := newQueue(t, order)
			attempts := 3
			if err := s.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxAttempts: &attempts}); err != nil {
				t.Fatal(err)
			}
			m := &queueModel{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), store: s, q: q, app: openApp(t, path), lifo: order == penstock.LIFO}
			for range testseed.Steps(1500) {
				m.step()
			}
			m.finish()
		})
	}
}

func (m *queueModel) step() {
	m.Helper()
	switch m.rnd.IntN(12) {
	case 0, 1, 2:
		m.enqueue()
	case 3, 4, 5:
		m.claim(m.rnd.IntN(3)+1, strconv.Itoa(m.rnd.IntN(2)))
	case 6, 7:
		m.ack()
	case 8:
		m.fail()
	case 9:
		m.expire()
	case 10:
		m.due()
	case 11:
		switch m.rnd.IntN(3) {
		case 0:
			m.cancel()
		case 1:
			m.retryDead()
		case 2:
			m.check(m.q.Maintain(m.Context()))
			m.status()
		}
	}
}

func (m *queueModel) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// pick returns a random job in one of the states, nil without one.
func (m *queueModel) pick(states ...string) *modelJob {
	var all []*modelJob
	for _, j := range m.jobs {
		if slices.Contains(states, j.state) {
			all = append(all, j)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[m.rnd.IntN(len(all))]
}

func (m *queueModel) enqueue() {
	m.Helper()
	var jobs []penstock.NewJob
	for range m.rnd.IntN(4) + 1 {
		j := penstock.NewJob{Group: strconv.Itoa(m.rnd.IntN(2)), Priority: m.rnd.IntN(3) - 1}
		if m.rnd.IntN(3) > 0 {
			j.Key = fmt.Sprint("k", m.rnd.IntN(3))
		}
		if m.rnd.IntN(4) == 0 {
			j.NotBefore = time.Now().Add(time.Hour)
		}
		jobs = append(jobs, j)
	}
	var made []penstock.Enqueued
	var err error
	if m.rnd.IntN(2) == 0 {
		made, err = m.q.Enqueue(m.Context(), jobs...)
	} else {
		tx, begun := m.app.Begin()
		m.check(begun)
		made, err = m.store.Queue("jobs").EnqueueTx(m.Context(), tx, jobs...)
		if m.rnd.IntN(4) == 0 {
			m.check(tx.Rollback())
			return
		}
		m.check(tx.Commit())
	}
	m.check(err)
	for i, j := range jobs {
		if made[i].ID <= m.seq {
			m.Fatalf("job %d follows %d", made[i].ID, m.seq)
		}
		m.seq = made[i].ID
		state := "waiting"
		if !j.NotBefore.IsZero() {
			state = "scheduled"
		}
		m.jobs = append(m.jobs, &modelJob{id: made[i].ID, seq: made[i].ID, key: j.Key, group: j.Group, priority: j.Priority, limit: 3, state: state})
	}
}

// ready is what may run in a group, in order.
func (m *queueModel) ready(group string) (ready []*modelJob) {
	for _, j := range m.jobs {
		held := false
		for _, o := range m.jobs {
			held = held || j.key != "" && o.key == j.key && o != j && !j.began && (o.began || o.state == "waiting" && o.id < j.id)
		}
		if j.state == "waiting" && !held && (group == "any" || j.group == group) {
			ready = append(ready, j)
		}
	}
	slices.SortFunc(ready, func(a, b *modelJob) int {
		order := cmp.Compare(a.seq, b.seq)
		if m.lifo {
			order = -order
		}
		return cmp.Or(cmp.Compare(a.priority, b.priority), order)
	})
	return ready
}

func (m *queueModel) claim(n int, group string) []penstock.Job {
	m.Helper()
	want := m.ready(group)
	want = want[:min(n, len(want))]
	got, err := m.q.Claim(m.Context(), driver.Claim{Group: group, Jobs: n, Lease: time.Hour})
	m.check(err)
	if len(got) != len(want) {
		m.Fatalf("claimed %d jobs, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.ID != w.id || g.Attempt != w.attempts+1 || g.Key != w.key || g.Priority != w.priority || g.Group != w.group {
			m.Fatalf("job %d of the claim is %+v, want %+v", i, g, w)
		}
		w.state, w.lease, w.began = "running", g.Lease, true
	}
	return got
}

func (m *queueModel) end(j *modelJob) {
	m.jobs = slices.DeleteFunc(m.jobs, func(o *modelJob) bool { return o == j })
}

func (m *queueModel) ack() {
	m.Helper()
	var leases []int64
	for range m.rnd.IntN(3) + 1 {
		if j := m.pick("running"); j != nil {
			leases = append(leases, j.lease)
			m.end(j)
		}
	}
	held, err := m.q.Ack(m.Context(), append(leases, 1<<40)...)
	m.check(err)
	if slices.Sort(held); !slices.Equal(held, slices.Sorted(slices.Values(leases))) {
		m.Fatalf("Ack of %d returned %d", leases, held)
	}
}

// failed is what any failed attempt does to a job.
func (m *queueModel) failed(j *modelJob, then string) {
	j.attempts++
	j.state = then
	if j.attempts >= j.limit {
		j.state = "dead"
	}
	if j.state == "dead" {
		j.began = false
	}
}

func (m *queueModel) fail() {
	m.Helper()
	j := m.pick("running")
	if j == nil {
		return
	}
	switch m.rnd.IntN(4) {
	case 0:
		m.check(m.q.DeadLetter(m.Context(), j.lease, "given up"))
		m.failed(j, "dead")
	case 1:
		held, err := m.q.(driver.Releaser).Release(m.Context(), 0, j.lease, 1<<40)
		m.check(err)
		if len(held) != 1 {
			m.Fatalf("Release returned %d", held)
		}
		j.state = "waiting"
	default:
		after := time.Duration(m.rnd.IntN(2)) * time.Hour
		dead, err := m.q.Retry(m.Context(), j.lease, after, "refused")
		m.check(err)
		if m.failed(j, map[bool]string{true: "waiting", false: "scheduled"}[after == 0]); dead != (j.state == "dead") {
			m.Fatalf("Retry of attempt %d says dead=%v", j.attempts, dead)
		}
	}
}

func (m *queueModel) expire() {
	m.Helper()
	if j := m.pick("running"); j != nil {
		mustExec(m, m.app, `update penstock_leases set until = 1 where lease = ?`, j.lease)
		if held, err := m.q.Ack(m.Context(), j.lease); err != nil || len(held) != 0 {
			m.Fatalf("Ack of a lease that has ended: %d, %v", held, err)
		}
		m.failed(j, "waiting")
		if m.rnd.IntN(2) == 0 {
			m.check(m.q.Maintain(m.Context()))
		} else {
			m.claim(1, j.group)
		}
	}
}

func (m *queueModel) due() {
	m.Helper()
	if j := m.pick("scheduled"); j != nil {
		mustExec(m, m.app, `update penstock_scheduled set due = 1 where seq = ?`, j.seq)
		j.state = "waiting"
	}
}

func (m *queueModel) cancel() {
	m.Helper()
	j := m.pick("waiting", "scheduled", "running")
	if j == nil {
		return
	}
	if j.seq != j.id {
		if n, err := m.store.CancelJobs(m.Context(), "jobs", j.seq); err != nil || n != 0 {
			m.Fatalf("CancelJobs of a seq that is no id: %d, %v", n, err)
		}
	}
	if n, err := m.store.CancelJobs(m.Context(), "jobs", j.id, 1<<40); err != nil || n != 1 {
		m.Fatalf("CancelJobs of %+v: %d, %v", j, n, err)
	}
	m.end(j)
}

func (m *queueModel) retryDead() {
	m.Helper()
	j := m.pick("dead")
	if j == nil {
		return
	}
	if n, err := m.store.RetryDeadJobs(m.Context(), admin.DeadJobQuery{Queue: "jobs", IDs: []int64{j.id}}); err != nil || n != 1 {
		m.Fatalf("RetryDeadJobs: %d, %v", n, err)
	}
	j.state, j.limit = "waiting", max(j.limit, j.attempts+1) // at least one more
	j.seq = scan[int64](m, m.app, `select seq from penstock_queue_jobs where id = ?`, j.id)
	if j.seq <= m.seq {
		m.Fatalf("the dead letter came back at %d, not behind %d", j.seq, m.seq)
	}
	m.seq = j.seq
}

func (m *queueModel) count(states ...string) (n int64) {
	for _, j := range m.jobs {
		if slices.Contains(states, j.state) {
			n++
		}
	}
	return n
}

// status compares the counts, after a Maintain.
func (m *queueModel) status() {
	m.Helper()
	all, err := m.store.QueueStatus(m.Context())
	m.check(err)
	ready := int64(len(m.ready("any")))
	got := [5]int64{all[0].Ready, all[0].Running, all[0].Delayed, all[0].Waiting, all[0].DeadLetters}
	want := [5]int64{ready, m.count("running"), m.count("scheduled"), m.count("waiting") - ready, m.count("dead")}
	if got != want {
		m.Fatalf("status counts %d ready, running, delayed, waiting, dead; want %d", got, want)
	}
}

// finish runs the remaining jobs, and none is left.
func (m *queueModel) finish() {
	m.Helper()
	for len(m.jobs) > int(m.count("dead")) {
		m.due()
		m.claim(10, "0")
		m.claim(10, "1")
		m.ack()
	}
	if n, err := m.store.DiscardDeadJobs(m.Context(), admin.DeadJobQuery{Queue: "jobs"}); err != nil || n != len(m.jobs) {
		m.Errorf("DiscardDeadJobs: %d, %v, want %d", n, err, len(m.jobs))
	}
	for _, table := range []string{"queue_jobs", "ready", "keyed", "busy", "scheduled", "leases", "histories", "dead_jobs"} {
		if n := scan[int](m, m.app, `select count(*) from penstock_`+table); n != 0 {
			m.Errorf("%d rows are left in penstock_%s", n, table)
		}
	}
}

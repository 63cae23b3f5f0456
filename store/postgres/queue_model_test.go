package postgres_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
)

// jobState is where a job of the model is.
type jobState int

const (
	unborn    jobState = iota // enqueued by a transaction that is open
	ready                     // or waiting for its key: the model does not care
	scheduled                 // until it is made due
	running                   // leased, or dequeued by a transaction that is open
	dead
	done
)

type modelJob struct {
	id      int64
	key     string
	group   string
	state   jobState
	attempt int // how many it has had
	lease   int64
}

// jobTx is an open transaction of the model and what its end makes of jobs.
type jobTx struct {
	pgx.Tx
	born     []*modelJob
	claimed  []*modelJob
	dequeued []*modelJob
}

// jobModel is the reference: the expected state of one queue's jobs, by id.
type jobModel struct {
	*fixture
	r    *rand.Rand
	jobs map[int64]*modelJob
	txs  []*jobTx
	free []*pgx.Conn
}

// Jobs are enqueued, claimed, dequeued, acked, retried, dead-lettered, cancelled, lost by
// expired leases, in transactions that commit at once, late or never; all against a
// reference. No job is lost, none runs twice at a time, and of a key there never runs
// more than one, nor one while an earlier one is to run.
func TestJobModel(t *testing.T) {
	t.Parallel()
	seed := testseed.Seed()
	t.Logf("PENSTOCK_SEED=%d", seed)
	for _, ordering := range []string{"fifo", "lifo"} {
		for part := range testseed.Steps(3) {
			t.Run(fmt.Sprint(ordering, part), func(t *testing.T) {
				t.Parallel()
				m := &jobModel{fixture: newJobs(t, ordering), r: rand.New(rand.NewPCG(seed, uint64(part))), jobs: map[int64]*modelJob{}}
				m.Exec("select penstock.set_queue('q', max_attempts => 5)")
				for range 5 {
					m.free = append(m.free, m.Connect())
				}
				for range modelSteps() {
					m.step()
				}
				m.drain()
			})
		}
	}
}

func (m *jobModel) step() {
	m.Helper()
	switch n := m.r.IntN(100); {
	case n < 30:
		m.enqueueSome()
	case n < 55:
		m.run(m.r.IntN(3) == 0)
	case n < 65:
		m.finish()
	case n < 80:
		m.settle()
	case n < 84:
		m.cancelOne()
	case n < 87:
		m.expireSome()
	case n < 90:
		m.makeDue()
	case n < 92:
		m.retryDead()
	default:
		m.maintain()
	}
	m.check()
}

// within runs do in a transaction that commits now, or that stays open.
func (m *jobModel) within(do func(tx *jobTx)) {
	m.Helper()
	if len(m.free) == 0 {
		m.finish()
	}
	conn := m.free[len(m.free)-1]
	m.free = m.free[:len(m.free)-1]
	tx, err := conn.Begin(m.Ctx)
	m.Must(err)
	open := &jobTx{Tx: tx}
	m.txs = append(m.txs, open)
	do(open)
	if m.r.IntN(3) > 0 {
		m.end(open, true)
	}
}

// finish ends one of the open transactions, one of three by a rollback.
func (m *jobModel) finish() {
	m.Helper()
	if len(m.txs) > 0 {
		m.end(m.txs[m.r.IntN(len(m.txs))], m.r.IntN(3) > 0)
	}
}

func (m *jobModel) end(tx *jobTx, commit bool) {
	m.Helper()
	m.txs = slices.DeleteFunc(m.txs, func(x *jobTx) bool { return x == tx })
	m.free = append(m.free, tx.Conn())
	if commit {
		m.Must(tx.Commit(m.Ctx))
		for _, j := range tx.born {
			if j.state == unborn {
				j.state = ready
			}
		}
		for _, j := range tx.dequeued {
			j.state = done
		}
		return
	}
	m.Must(tx.Rollback(m.Ctx))
	for _, j := range tx.born {
		delete(m.jobs, j.id)
	}
	for _, j := range tx.dequeued {
		j.state = ready
	}
	for _, j := range tx.claimed {
		j.state, j.lease = ready, 0
		j.attempt--
	}
}

func (m *jobModel) enqueueSome() {
	m.Helper()
	m.within(func(tx *jobTx) {
		for range 1 + m.r.IntN(4) {
			j := &modelJob{key: []string{"", "a", "a", "b", "c"}[m.r.IntN(5)], group: []string{"", "", "g"}[m.r.IntN(3)], state: unborn}
			args := []any{nilIfEmpty(j.key), j.group, m.r.IntN(3) - 1}
			sql := "select penstock.enqueue('q', 'x', $1, $2, $3)"
			switch m.r.IntN(4) {
			case 0:
				sql = "insert into penstock.q (payload, key, group_key, priority) values ('x', $1, $2, $3) returning seq"
			case 1:
				if m.r.IntN(2) == 0 {
					sql = "select penstock.enqueue('q', 'x', $1, $2, $3, now() + interval '1 day')"
					j.state = scheduled // no earlier: it is made due by hand
				}
			}
			m.Must(tx.QueryRow(m.Ctx, sql, args...).Scan(&j.id))
			if j.state == scheduled {
				// Only a committed job can be made due.
				tx.born = append(tx.born, j)
				m.jobs[j.id] = j
				continue
			}
			tx.born = append(tx.born, j)
			m.jobs[j.id] = j
		}
	})
}

// run claims or dequeues jobs and checks that these, and not others, may run.
func (m *jobModel) run(dequeue bool) {
	m.Helper()
	m.within(func(tx *jobTx) {
		n, group := 1+m.r.IntN(4), []string{"", "", "g"}[m.r.IntN(3)]
		var got []leased
		if dequeue {
			rows, err := tx.Query(m.Ctx, "select id, 0::bigint, coalesce(key, ''), attempt from penstock.dequeue('q', $1, $2)", n, group)
			m.Must(err)
			got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leased, err error) {
				err = row.Scan(&l.id, &l.lease, &l.key, &l.attempt)
				return l, err
			})
			m.Must(err)
		} else {
			got = m.claimOn(tx, n, group)
		}
		if len(got) > n {
			m.Fatalf("%d jobs, asked for %d", len(got), n)
		}
		for _, l := range got {
			j := m.jobs[l.id]
			switch {
			case j == nil:
				m.Fatalf("job %d never was, or was rolled back", l.id)
			case j.state != ready && !(j.state == unborn && slices.Contains(tx.born, j)):
				m.Fatalf("job %d runs in state %d", l.id, j.state)
			case j.group != group || j.key != l.key:
				m.Fatalf("job %d is of group %q and key %q: got %q and %q", l.id, j.group, j.key, group, l.key)
			case l.attempt != j.attempt+1:
				m.Fatalf("job %d runs with attempt %d after %d", l.id, l.attempt, j.attempt)
			}
			for _, other := range m.jobs {
				switch {
				case j.key == "" || other.key != j.key || other == j:
				case other.state == running && !slices.Contains(tx.dequeued, other):
					m.Fatalf("jobs %d and %d of key %q run at a time", other.id, j.id, j.key)
				case (other.state == ready || other.state == scheduled && other.attempt > 0 && !m.uncommitted(other)) && other.id < j.id: // one that is only delayed has no place yet
					m.Fatalf("job %d of key %q runs before %d", j.id, j.key, other.id)
				}
			}
			j.state = running
			if dequeue {
				tx.dequeued = append(tx.dequeued, j)
			} else {
				j.lease = l.lease
				j.attempt++
				tx.claimed = append(tx.claimed, j)
			}
		}
	})
}

func (m *jobModel) uncommitted(j *modelJob) bool {
	return slices.ContainsFunc(m.txs, func(tx *jobTx) bool {
		return slices.Contains(tx.born, j) || slices.Contains(tx.claimed, j)
	})
}

// some are jobs in a state, whose transactions have committed, in random order.
func (m *jobModel) some(s jobState) (some []*modelJob) {
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		if j := m.jobs[id]; j.state == s && (s != running || j.lease != 0) && !m.uncommitted(j) {
			some = append(some, j)
		}
	}
	m.r.Shuffle(len(some), func(a, b int) { some[a], some[b] = some[b], some[a] })
	return some[:min(len(some), 1+m.r.IntN(3))]
}

func (m *jobModel) settle() {
	m.Helper()
	for _, j := range m.some(running) {
		lease := j.lease
		j.lease = 0
		switch m.r.IntN(6) {
		case 0:
			m.Exec("select penstock.dead_letter('q', $1, 'dead')", lease)
			j.state = dead
		case 1, 2:
			after, state := "0", ready
			if m.r.IntN(2) == 0 {
				after, state = "1 day", scheduled
			}
			var again bool
			m.Must(m.Conn.QueryRow(m.Ctx, "select penstock.retry('q', $1, $2::text::interval, 'failed')", lease, after).Scan(&again))
			if again != (j.attempt < 5) {
				m.Fatalf("job %d after attempt %d: again %v", j.id, j.attempt, again)
			}
			if j.state = state; !again {
				j.state = dead
			}
		default:
			m.wantText(fmt.Sprintf("{%d}", lease), "select array(select penstock.ack_many('q', array[$1]::bigint[]))::text", lease)
			j.state = done
		}
	}
}

func (m *jobModel) cancelOne() {
	m.Helper()
	s := []jobState{ready, scheduled, running}[m.r.IntN(3)]
	for _, j := range m.some(s)[:min(1, len(m.some(s)))] {
		if s == ready && len(m.txs) > 0 {
			return // an open transaction might have moved it
		}
		m.wantText("1", "select penstock.cancel('q', array[$1::bigint])::text", j.id)
		j.state, j.lease = done, 0
	}
}

func (m *jobModel) expireSome() {
	m.Helper()
	for _, j := range m.some(running) {
		m.Exec("update penstock._lease set lease_until = now() - interval '1 s' where lease = $1", j.lease)
		if j.state, j.lease = ready, 0; j.attempt >= 5 {
			j.state = dead
		}
	}
	m.maintain()
}

func (m *jobModel) makeDue() {
	m.Helper()
	for _, j := range m.some(scheduled) {
		m.Exec("update penstock._scheduled set due = now() where id = $1 and due < 'infinity'", j.id)
		j.state = ready
	}
	m.maintain()
}

func (m *jobModel) retryDead() {
	m.Helper()
	for _, j := range m.some(dead) {
		m.wantText("1", "select penstock.retry_dead_jobs('q', array[$1::bigint])::text", j.id)
		j.state = ready // its attempts still count: the next may be the last
	}
}

const modelQueue = "(select q.id from penstock._queue q where q.name = 'q')"

// check compares what others see with the model: each job in one place, or in none.
func (m *jobModel) check() {
	m.Helper()
	rows, err := m.Conn.Query(m.Ctx, `select coalesce(id, seq), 'ready' from penstock.q
		union all select id, case when due < 'infinity' then 'scheduled' else 'ready' end from penstock._scheduled where queue = `+modelQueue+`
		union all select id, 'leased' from penstock._lease where queue = `+modelQueue+` union all select id, 'dead' from penstock._dead_job where queue = `+modelQueue)
	m.Must(err)
	seen := map[int64]string{}
	var id int64
	var place string
	_, err = pgx.ForEachRow(rows, []any{&id, &place}, func() error {
		if seen[id] != "" {
			m.Fatalf("job %d is in two places, %s and %s", id, seen[id], place)
		}
		seen[id] = place
		return nil
	})
	m.Must(err)
	for _, j := range m.jobs {
		want := map[jobState]string{ready: "ready", scheduled: "scheduled", dead: "dead", running: "leased"}[j.state]
		if j.state == running && (j.lease == 0 || m.uncommitted(j)) {
			want = "ready"
		}
		if slices.ContainsFunc(m.txs, func(tx *jobTx) bool { return slices.Contains(tx.born, j) }) {
			want = ""
		}
		if seen[j.id] != want {
			m.Fatalf("job %d is %q, want %q", j.id, seen[j.id], want)
		}
	}
}

// drain ends everything; every job is done or dead then.
func (m *jobModel) drain() {
	m.Helper()
	for len(m.txs) > 0 {
		m.finish()
	}
	for range 1000 {
		for _, j := range m.some(running) {
			m.Exec("select penstock.ack('q', $1)", j.lease)
			j.state, j.lease = done, 0
		}
		m.makeDue()
		m.run(false)
		for len(m.txs) > 0 {
			m.end(m.txs[0], true)
		}
		m.check()
		left := 0
		for _, j := range m.jobs {
			if j.state != done && j.state != dead {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	for _, j := range m.jobs {
		if j.state != done && j.state != dead {
			m.Errorf("job %d is stuck: %+v", j.id, *j)
		}
	}
}

func nilIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

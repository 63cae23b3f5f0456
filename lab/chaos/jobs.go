package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// queue holds a job for some of the messages, enqueued in the same transaction. Workers are the real binary: they post each job
// to this program, which is its handler and so sees when it begins and ends.
const queue = "tasks"

// groups have the jobs, each with its policy. Together they may run fewer jobs than the workers have handlers.
var groups = []struct {
	name   string // in policies the one without a name is every group
	limit  int64  // how many jobs may run at a time
	policy string
}{
	{"", 6, "--rate 100/1s --burst 20 --weight 2"},
	{"gold", 6, "--weight 3"},
	{"silver", 4, "--rate 60/1s --burst 10"},
}

// jobsRoute is the queue's name in events and violations.
const jobsRoute = "jobs"

var workerNames = []string{"worker-a", "worker-b", "worker-c"}

// hasJob reports whether a message comes with a job.
func (m message) hasJob() bool { return m.Topic == topicSent }

// replaced reports whether its job takes the place of the one before of its key, if that has not begun.
func (m message) replaced() bool { return slices.Contains(replacedKeys, m.Key) }

// onConflict is how it takes that place.
func (m message) onConflict() string { return []string{"replace", "debounce"}[m.fate(2)] }

// group of its job. The jobs of a key have the same one.
func (m message) group() string {
	return groups[message{ID: cmp.Or(m.Key, m.ID)}.fate(uint32(len(groups)))].name
}

// tie is the barrier of a message's job, as a header, and the messages for whose jobs it waits.
type tie struct {
	header string
	after  []string
}

// notBefore is when its job may run, or nil. A key's jobs are not delayed: such a job has no place among them. Nor are those that wait for others.
func (m message) notBefore(t tie) *time.Time {
	debounced := m.replaced() && m.onConflict() == "debounce"
	if !debounced && (m.Key != "" || t.after != nil || m.fate(8) != 0) {
		return nil
	}
	at := time.Now().UTC().Add(time.Second)
	return &at
}

// priority of its job. The jobs of a key have their order whatever it is.
func (m message) priority() int { return int(m.fate(3)) }

// fate is a number below n that belongs to the message.
func (m message) fate(n uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(m.ID))
	return h.Sum32() % n
}

// jobRun is one call of the handler.
type jobRun struct {
	message
	After        []string // the messages whose jobs end before this one begins
	Job          string   // its name in Penstock
	Worker       string
	Begun, Ended time.Time // Ended is zero while it runs
	Status       int       // the answer; 0 if the worker did not wait for it
}

// The answers that mean something to the checker.
const (
	jobDone    = http.StatusOK
	jobRefused = http.StatusUnprocessableEntity // a dead letter at once
)

// cancellation is a request of the operator, and whether each of the jobs was there.
type cancellation struct {
	From, To time.Time
	Certain  bool
}

// handler runs the jobs.
type handler struct {
	url string

	mu        sync.Mutex
	runs      []*jobRun
	of        map[string][]*jobRun // by the message's id
	cancelled map[string]cancellation
	absolved  bool      // nothing is refused any more
	lostWAL   time.Time // the last promotion of a standby that had not heard all
}

func startHandler() (*handler, *httptest.Server) {
	h := &handler{of: map[string][]*jobRun{}, cancelled: map[string]cancellation{}}
	server := httptest.NewServer(h)
	h.url = server.URL
	return h, server
}

func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	run := &jobRun{}
	if err := json.NewDecoder(req.Body).Decode(run); err != nil {
		return // the worker is gone
	}
	run.Worker, run.Job = strings.TrimPrefix(req.URL.Path, "/"), req.Header.Get("Idempotency-Key")
	status, takes := h.begin(run)
	sleep(req.Context(), takes)
	h.mu.Lock()
	run.Ended = time.Now()
	if req.Context().Err() == nil {
		run.Status = status
	}
	h.mu.Unlock()
	switch status {
	case http.StatusBadGateway:
		panic(http.ErrAbortHandler) // the job is released, and rests without an attempt being spent
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
}

// begin decides how a run is to end.
func (h *handler) begin(run *jobRun) (status int, takes time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run.Begun = time.Now()
	n := len(h.of[run.ID])
	h.of[run.ID] = append(h.of[run.ID], run)
	h.runs = append(h.runs, run)
	takes = time.Duration(rand.Int64N(int64(150 * time.Millisecond)))
	switch fate := run.fate(200); {
	case fate < 4 && !h.absolved && !run.replaced(): // of two dead letters of a unique key one could not be retried
		return jobRefused, takes
	case fate < 12 && n < 2:
		return http.StatusInternalServerError, takes
	case fate < 18 && n < 1:
		return http.StatusTooManyRequests, takes
	case fate < 22 && n < 1:
		return http.StatusBadGateway, takes
	case fate < 26 && n < 1:
		return jobDone, between(rand.New(rand.NewPCG(uint64(fate), 0)), lease+lease/4, 2*lease)
	case n > 0: // a late worker may still try to end the run before
		return jobDone, time.Duration(rand.Int64N(int64(lease)))
	}
	return jobDone, takes
}

// recent is up to n jobs that ran last, by the id of their message. A number from before a promotion may be another job's now, of which
// workers learn within two leases.
func (h *handler) recent(n int) map[string]*jobRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]*jobRun{}
	for i := len(h.runs) - 1; i >= 0 && len(all) < n; i-- {
		if run := h.runs[i]; run.Status != jobDone && !run.replaced() && run.Begun.After(h.lostWAL.Add(2*lease)) { // it may be another one's job by now
			all[run.ID] = run
		}
	}
	return all
}

func (h *handler) promoted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lostWAL = time.Now()
}

func (h *handler) absolve() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.absolved = true
}

// begun is how many runs there were.
func (h *handler) begun() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.runs)
}

// startWorkers creates the queue and starts the workers, each with a way to the database.
func (r *rig) startWorkers(ctx context.Context) (err error) {
	handler, server := startHandler()
	r.handler = handler
	r.closers = append(r.closers, func() error {
		server.CloseClientConnections() // a worker may be gone in the middle of its job
		server.Close()
		return nil
	})
	if _, err := r.penstock(ctx, "queue", "create", queue); err != nil {
		return err
	}
	for _, g := range groups {
		policy := append(strings.Fields(g.policy), "--max-running", strconv.FormatInt(g.limit, 10))
		if _, err := r.penstock(ctx, append([]string{"queue", "group", "set", queue, cmp.Or(g.name, "*")}, policy...)...); err != nil {
			return err
		}
	}
	for _, name := range workerNames {
		p := &process{name: name, kind: "worker"}
		if p.postgres, err = r.databaseLink(name+"-postgres", r.database, p.blast("")); err != nil {
			return err
		}
		err := r.launch(p, func() *exec.Cmd {
			return exec.Command(r.binary, append([]string{"work", queue, "--all-groups", "--http", handler.url + "/" + name + "#allow_private=true",
				"--lease", lease.String(), "--concurrency", "8", "--database-url", p.postgres.url}, r.profileFlags()...)...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cancels has the operator cancel a few jobs that run, or wait to be tried again.
func (o *operator) cancels() fault {
	return fault{"jobs_cancelled", "operator", blast{}, 2, func(ctx context.Context, _ *rand.Rand, _ func()) (bool, error) {
		some := o.rig.handler.recent(5)
		args := []string{"job", "cancel", queue, "--json"}
		for _, run := range some {
			args = append(args, strings.TrimPrefix(run.Job, queue+"-"))
		}
		if len(some) == 0 {
			return false, nil
		}
		asked := cancellation{From: time.Now()}
		out, err := o.rig.penstock(ctx, args...)
		var said struct{ Cancelled int }
		if err = errors.Join(err, json.Unmarshal(out, &said)); err != nil {
			o.rig.chronicle.printf("jobs were perhaps not cancelled: %v", err)
		}
		asked.To, asked.Certain = time.Now(), said.Cancelled == len(some)
		h := o.rig.handler
		h.mu.Lock()
		defer h.mu.Unlock()
		for id := range some {
			if before, again := h.cancelled[id]; again {
				asked.From = before.From
			}
			h.cancelled[id] = asked
		}
		return said.Cancelled > 0, nil
	}}
}

// queueStatus is the queue in penstock status --json.
type queueStatus struct {
	Ready, Running, Delayed, Waiting int64
	DeadLetters                      int64 `json:"dead_letters"`
	Groups                           []struct {
		Group   string
		Running int64
	}
}

func (s queueStatus) left() int64 { return s.Ready + s.Running + s.Delayed + s.Waiting }

func (s queueStatus) String() string {
	return fmt.Sprintf("%d jobs ready, %d running, %d delayed, %d waiting", s.Ready, s.Running, s.Delayed, s.Waiting)
}

package console

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
)

func (c *Console) dead(ctx context.Context, r *call) (l List[DeadLetter], err error) {
	limit, after, err := r.page()
	f, failed := filterOf(r.URL.Query())
	if err = cmp.Or(err, failed); err != nil {
		return l, err
	}
	b := c.boxOf(r)
	if f.narrows() {
		l.Items = []DeadLetter{}
		_, goOn, err := inWindows(ctx, b, f, after, lookFor, func(f Filter) (bool, error) {
			if any, err := b.causes(ctx, f, 1); err != nil || len(any) == 0 { // it reads no contents
				return false, err
			}
			some, err := b.page(ctx, f, 0, limit-len(l.Items))
			l.Items = append(l.Items, some...)
			return ends(l.Items, limit), err
		})
		if ends(l.Items, limit) {
			goOn = l.Items[len(l.Items)-1].Number
		}
		if goOn > 0 {
			l.After = strconv.FormatInt(goOn, 10)
		}
		return l, err
	}
	found, err := b.page(ctx, f, after, limit)
	if ends(found, limit) {
		limit = len(found)
	}
	return listOf(found, limit, func(d DeadLetter) string { return strconv.FormatInt(d.Number, 10) }), err
}

func (c *Console) parked(ctx context.Context, r *call) (l List[admin.ParkedKey], err error) {
	limit, err := r.int("limit", 50, 1000)
	p, failed := c.parkedOf(r)
	if err = cmp.Or(err, failed); err != nil {
		return l, err
	}
	found, err := p.ParkedKeys(ctx, limit)
	return listOf(found, limit+1, nil), err
}

func (c *Console) retryParked(ctx context.Context, r *call, b Keys) (Count, error) {
	p, err := c.parkedOf(r)
	if err = cmp.Or(err, named("keys", b.Keys)); err != nil {
		return Count{}, err
	}
	n, err := p.RetryParked(ctx, b.Keys...)
	return Count{int64(n)}, err
}

func (c *Console) giveUpParked(ctx context.Context, r *call, b GiveUp) (Count, error) {
	n, err := c.o.Store.GiveUpParked(ctx, r.PathValue("outbox"), r.PathValue("subscription"), b.Number, b.Reason)
	return Count{int64(n)}, err
}

// parker has the parked keys of one subscription.
type parker interface {
	ParkedKeys(ctx context.Context, limit int) ([]admin.ParkedKey, error)
	RetryParked(ctx context.Context, keys ...string) (int, error)
}

func (c *Console) parkedOf(r *call) (parker, error) {
	if r.PathValue("table") == "" {
		return messageBox{c, r.PathValue("outbox"), r.PathValue("subscription")}, nil
	}
	a, err := c.adoptedOf(r)
	if err != nil {
		return nil, err
	}
	return a.Store, nil
}

func (b messageBox) ParkedKeys(ctx context.Context, limit int) ([]admin.ParkedKey, error) {
	return b.c.o.Store.ParkedKeys(ctx, b.outbox, b.subscription, limit)
}

func (b messageBox) RetryParked(ctx context.Context, keys ...string) (int, error) {
	return b.c.o.Store.RetryParked(ctx, b.outbox, b.subscription, keys...)
}

func (c *Console) groups(ctx context.Context, r *call) (l List[admin.GroupStatus], err error) {
	limit, err := r.int("limit", 50, 1000)
	if err != nil {
		return l, err
	}
	found, err := c.o.Store.QueueGroups(ctx, r.PathValue("queue"), r.FormValue("after"), limit)
	return listOf(found, limit, func(g admin.GroupStatus) string { return g.Group }), err
}

// Running is a job that a worker holds.
type Running struct {
	ID      int64   `json:"id"`
	Worker  string  `json:"worker"`
	Attempt int     `json:"attempt"`
	Age     float64 `json:"age_seconds"`
	Held    float64 `json:"running_seconds"`
	Expired bool    `json:"lease_expired"`
	// Report is the worker's last report of it.
	Report json.RawMessage `json:"report,omitempty"`
}

func (c *Console) running(ctx context.Context, r *call) (l List[Running], err error) {
	store, ok := c.o.Store.(running)
	if !ok {
		return listOf[Running](nil, 1, nil), nil
	}
	found, err := store.Running(ctx, r.PathValue("queue"), countedUpTo)
	if err == nil && len(found) == 0 {
		_, err = c.o.Store.QueueGroups(ctx, r.PathValue("queue"), "", 1) // is there such a queue?
	}
	for _, one := range found {
		l.Items = append(l.Items, Running{one.ID, one.Worker, one.Attempt, one.Age.Seconds(), one.Held.Seconds(), one.Expired > 0, c.shownOf(one.Report)})
	}
	return listOf(l.Items, len(l.Items)+1, nil), err
}

// done lists a queue's history of done jobs; without a history it is empty.
func (c *Console) done(ctx context.Context, r *call) (l List[admin.DoneJob], err error) {
	store, ok := c.o.Store.(driver.HistoryStore)
	if !ok {
		return listOf[admin.DoneJob](nil, 1, nil), nil
	}
	q := admin.DoneJobQuery{Queue: r.PathValue("queue"), Kind: r.FormValue("kind"), After: r.FormValue("after")}
	if q.Limit, err = r.int("limit", 50, 1000); err != nil {
		return l, err
	}
	if id := r.FormValue("id"); id != "" {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return l, &penstock.FieldError{Field: "id", Problem: "is not a number", Hint: "give the id of a job"}
		}
		q.IDs = []int64{n}
	}
	found, next, err := store.DoneJobs(ctx, q)
	for i := range found {
		found[i].Report = c.shownOf(found[i].Report)
	}
	l = listOf(found, len(found)+1, nil)
	l.After = next
	return l, err
}

// Schedule is a periodic job without its contents.
type Schedule struct {
	Name        string `json:"name"`
	Cron        string `json:"cron"`
	Next        string `json:"next"`
	Kind        string `json:"kind"`
	Group       string `json:"group"`
	Paused      bool   `json:"paused"`
	SkipOverlap bool   `json:"skip_overlap"`
	LastJob     int64  `json:"last_job"` // 0: it has made none
}

func (c *Console) schedules(ctx context.Context, r *call) (l List[Schedule], err error) {
	found, err := c.o.Store.Schedules(ctx, r.PathValue("queue"))
	for _, s := range found {
		l.Items = append(l.Items, Schedule{s.Name, s.Cron, s.Next.UTC().Format("2006-01-02 15:04:05Z"), s.Job.Kind, s.Job.Group, s.Paused, s.SkipOverlap, s.LastJob})
	}
	return listOf(l.Items, len(l.Items)+1, nil), err
}

// scheduleRoutes act on one periodic job.
func scheduleRoutes() []route {
	act := func(verb, summary string, do func(ctx context.Context, s Store, queue, name string) error) route {
		return acts(ofQueue+"/schedules/"+verb, summary, func(c *Console, ctx context.Context, call *call, b Named) (Count, error) {
			return Count{1}, do(ctx, c.o.Store, call.PathValue("queue"), b.Name)
		})
	}
	return []route{
		act("pause", "Pause a periodic job: none is enqueued until it is resumed", func(ctx context.Context, s Store, queue, name string) error { return s.PauseSchedule(ctx, queue, name) }),
		act("resume", "End the pause of a periodic job", func(ctx context.Context, s Store, queue, name string) error {
			return s.ResumeSchedule(ctx, queue, name)
		}),
		acts(ofQueue+"/schedules/run", "Enqueue a periodic job now", func(c *Console, ctx context.Context, call *call, b Named) (Enqueued, error) {
			made, err := c.o.Store.RunSchedule(ctx, call.PathValue("queue"), b.Name)
			return Enqueued{made.ID}, err
		}),
	}
}

// HeldMessage is a message that an inbox holds back.
type HeldMessage struct {
	ID       string `json:"id"`
	Key      string `json:"key"`
	Previous string `json:"waits_for"`
	Bytes    int64  `json:"payload_bytes"`
	At       string `json:"came_at"`
	Due      string `json:"due"`
}

func (c *Console) held(ctx context.Context, r *call) (l List[HeldMessage], err error) {
	limit, err := r.int("limit", 50, 1000)
	if err != nil {
		return l, err
	}
	found, err := c.o.Store.HeldMessages(ctx, admin.HeldQuery{Consumer: r.PathValue("consumer"), Limit: limit})
	for _, m := range found {
		l.Items = append(l.Items, HeldMessage{m.ID, m.Key, m.Previous, m.PayloadBytes, m.At.UTC().Format("2006-01-02 15:04:05Z"), m.Due.UTC().Format("2006-01-02 15:04:05Z")})
	}
	return listOf(l.Items, limit+1, nil), err
}

func (c *Console) gaps(ctx context.Context, r *call) (l List[admin.InboxGap], err error) {
	limit, err := r.int("limit", 50, 1000)
	if err != nil {
		return l, err
	}
	found, err := c.o.Store.InboxGaps(ctx, r.PathValue("consumer"), limit)
	return listOf(found, limit+1, nil), err
}

// Worker is a worker with the jobs that it runs.
type Worker struct {
	admin.Worker
	// State is working, idle, stopped, silent (its heartbeats have stopped), or unknown: it has leases and sends no heartbeats.
	State string `json:"state"`
	// Jobs are the ids of up to 1,000 jobs that it has leased.
	Jobs []int64 `json:"jobs"`
}

// Workers are those that the database knows.
type Workers struct {
	Items []Worker `json:"items"`
	// Heartbeats means that the database keeps heartbeats. Without them it knows only the workers that have jobs.
	Heartbeats bool `json:"heartbeats"`
}

func (c *Console) workers(ctx context.Context, r *call) (all Workers, err error) {
	queue := r.FormValue("queue")
	all.Items = []Worker{}
	of := map[[2]string]int{}
	if store, ok := c.o.Store.(driver.WorkerStore); ok {
		all.Heartbeats = true
		found, err := store.Workers(ctx, queue, countedUpTo)
		if err != nil {
			return all, err
		}
		for _, w := range found {
			of[[2]string{w.Queue, w.Name}] = len(all.Items)
			all.Items = append(all.Items, Worker{Worker: w, State: w.State(time.Now()), Jobs: []int64{}})
		}
	}
	if store, ok := c.o.Store.(running); ok {
		found, err := store.Running(ctx, queue, countedUpTo)
		if err != nil {
			return all, err
		}
		for i := range all.Items {
			all.Items[i].State = doctor.StateOf(&all.Items[i].Worker, time.Now(), found)
		}
		for _, job := range found {
			at, known := of[[2]string{job.Queue, job.Worker}]
			if !known {
				at = len(all.Items)
				of[[2]string{job.Queue, job.Worker}] = at
				all.Items = append(all.Items, Worker{Worker: admin.Worker{Queue: job.Queue, Name: job.Worker}, State: "unknown", Jobs: []int64{}})
			}
			w := &all.Items[at]
			w.Jobs = append(w.Jobs, job.ID)
			w.Running = max(w.Running, len(w.Jobs))
		}
	}
	slices.SortFunc(all.Items, func(a, b Worker) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// mostJobsShown are the jobs of a worker on the page.
const mostJobsShown = 10

// Some are the first jobs, for the page.
func (w Worker) Some() []int64 { return w.Jobs[:min(len(w.Jobs), mostJobsShown)] }

// Others is how many there are behind these.
func (w Worker) Others() int { return w.Running - len(w.Some()) }

type workersData struct {
	Workers
	Finds  bool
	Relays []admin.OutboxStatus
}

func (c *Console) workersPage(ctx context.Context, r *call, s *Status) (_ string, _ any, err error) {
	d := workersData{Relays: s.Outboxes}
	_, d.Finds = c.o.Store.(finders)
	d.Workers, err = c.workers(ctx, r)
	return "Workers", d, err
}

package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// workerMetrics are those of the workers in this process.
type workerMetrics struct {
	claimed, ended *prometheus.CounterVec
	start, run     *prometheus.HistogramVec
	running        *running
}

// running has the jobs whose handlers are running.
type running struct {
	mu    sync.Mutex
	since map[string]map[int64]time.Time // by queue and id
}

func (r *running) collect(to chan<- prometheus.Metric) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue, jobs := range r.since {
		longest := 0.0
		for _, at := range jobs {
			longest = max(longest, waited(now, at))
		}
		to <- constant(longestRunning, prometheus.GaugeValue, longest, queue)
	}
}

func newWorkerMetrics(f factory) workerMetrics {
	return workerMetrics{
		claimed: f.counter("penstock_worker_claimed_jobs_total", "Jobs that were claimed, each attempt counted.", "queue"),
		ended:   f.counter("penstock_worker_ended_jobs_total", "Attempts at jobs by how they ended: done, failed (to be tried again), dead, lost (its lease), settled (by the handler), released (not begun), snoozed, cancelled.", "queue", "kind", "result"),
		start:   f.histogram("penstock_worker_enqueue_to_start_seconds", "From when a job was enqueued, by the database's clock, to the start of its first attempt, by this machine's; a delayed job's delay is part of it.", ofWaits, "queue", "kind"),
		run:     f.histogram("penstock_worker_job_duration_seconds", "How long handlers run.", ofWaits, "queue", "kind"),
		running: &running{since: map[string]map[int64]time.Time{}},
	}
}

type workerObserver struct {
	claimed prometheus.Counter
	all     *kindObserver            // of a worker that has one handler for all kinds
	kinds   map[string]*kindObserver // or of one that has one for each
	others  *kindObserver
	running *running
	since   map[int64]time.Time // of running
}

// kindObserver counts the jobs of a kind.
type kindObserver struct {
	ends       map[work.End]prometheus.Counter
	start, run prometheus.Observer
}

// otherKinds are all that have no handler: a producer must not be able to make series.
const otherKinds = "other"

func (w *workerMetrics) kind(queue, kind string) *kindObserver {
	k := &kindObserver{ends: map[work.End]prometheus.Counter{}, start: w.start.WithLabelValues(queue, kind), run: w.run.WithLabelValues(queue, kind)}
	for _, end := range []work.End{work.Done, work.Failed, work.Dead, work.Lost, work.Settled, work.Released, work.Snoozed, work.Cancelled} {
		k.ends[end] = w.ended.WithLabelValues(queue, kind, string(end))
	}
	return k
}

func (o *workerObserver) of(job *penstock.Job) *kindObserver {
	if o.all != nil {
		return o.all
	}
	if k := o.kinds[job.Kind()]; k != nil {
		return k
	}
	return o.others
}

func (w *workerMetrics) observer(queue string, kinds []string) *workerObserver {
	o := &workerObserver{claimed: w.claimed.WithLabelValues(queue)}
	if len(kinds) == 0 {
		o.all = w.kind(queue, "")
	} else {
		o.kinds, o.others = map[string]*kindObserver{}, w.kind(queue, otherKinds)
		for _, kind := range kinds {
			o.kinds[kind] = w.kind(queue, labels(kind)[0])
		}
	}
	w.running.mu.Lock()
	defer w.running.mu.Unlock()
	if w.running.since[queue] == nil {
		w.running.since[queue] = map[int64]time.Time{}
	}
	o.running, o.since = w.running, w.running.since[queue]
	return o
}

func (o *workerObserver) Claimed(jobs int) { o.claimed.Add(float64(jobs)) }

func (o *workerObserver) Started(job penstock.Job, at time.Time) {
	o.running.mu.Lock()
	o.since[job.ID] = at
	o.running.mu.Unlock()
	if k := o.of(&job); job.Attempt == 1 && k != o.others { // one without a handler comes back every ten seconds, and never starts
		k.start.Observe(waited(at, job.CreatedAt))
	}
}

func (o *workerObserver) Ended(job penstock.Job, how work.End, took time.Duration) {
	k := o.of(&job)
	k.ends[how].Inc()
	o.running.mu.Lock()
	delete(o.since, job.ID)
	o.running.mu.Unlock()
	if took > 0 { // the handler began
		k.run.Observe(took.Seconds())
	}
}

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// workerMetrics are those of the workers in this process.
type workerMetrics struct {
	claimed, ended *prometheus.CounterVec
	start, run     *prometheus.HistogramVec
}

func newWorkerMetrics() workerMetrics {
	return workerMetrics{
		claimed: counter("penstock_worker_claimed_jobs_total", "Jobs that were claimed, each attempt counted.", "queue"),
		ended:   counter("penstock_worker_ended_jobs_total", "Attempts at jobs by how they ended: done, failed (to be tried again), dead, lost (its lease), settled (by the handler), released (not begun), snoozed, cancelled.", "queue", "result"),
		start:   histogram("penstock_worker_enqueue_to_start_seconds", "From when a job was enqueued, by the database's clock, to the start of its first attempt, by this machine's; a delayed job's delay is part of it.", ofWaits, "queue"),
		run:     histogram("penstock_worker_job_duration_seconds", "How long handlers run.", ofWaits, "queue"),
	}
}

func (w *workerMetrics) each(f func(prometheus.Collector)) {
	for _, c := range []prometheus.Collector{w.claimed, w.ended, w.start, w.run} {
		f(c)
	}
}

type workerObserver struct {
	claimed    prometheus.Counter
	ends       map[work.End]prometheus.Counter
	start, run prometheus.Observer
}

func (w *workerMetrics) observer(queue string) *workerObserver {
	o := &workerObserver{claimed: w.claimed.WithLabelValues(queue), ends: map[work.End]prometheus.Counter{},
		start: w.start.WithLabelValues(queue), run: w.run.WithLabelValues(queue)}
	for _, end := range []work.End{work.Done, work.Failed, work.Dead, work.Lost, work.Settled, work.Released, work.Snoozed, work.Cancelled} {
		o.ends[end] = w.ended.WithLabelValues(queue, string(end))
	}
	return o
}

func (o *workerObserver) Claimed(jobs int) { o.claimed.Add(float64(jobs)) }

func (o *workerObserver) Started(job penstock.Job, at time.Time) {
	if job.Attempt == 1 {
		o.start.Observe(waited(at, job.CreatedAt))
	}
}

func (o *workerObserver) Ended(_ penstock.Job, how work.End, took time.Duration) {
	o.ends[how].Inc()
	if took > 0 { // the handler began
		o.run.Observe(took.Seconds())
	}
}

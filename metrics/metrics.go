// Package metrics has metrics for Prometheus: of the relays and workers in this process, and of the
// status of a database. docs/reference/metrics.md lists every metric. Labels are names of outboxes,
// subscriptions, queues and consumers, never keys.
package metrics

import (
	"cmp"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/work"
)

// Options choose the metrics. With the zero value they are only about this process.
type Options struct {
	// Store is the database whose status is read: Status, QueueStatus, Inboxes and VacuumPins, as far as
	// it has these methods and its role may call them. Nil means no status.
	Store any
	// Queue limits the status to one queue, for a worker.
	Queue string
	// Groups is for how many groups of each queue jobs are counted: the first by name. Default 0, none.
	Groups int
	// StatusEvery is the shortest time between two reads of the status, however often it is scraped.
	// Default 10 s.
	StatusEvery time.Duration
	// StatusTimeout ends a read of the status, also in the database. Default 5 s.
	StatusTimeout time.Duration
	// StalledAfter is after how long without progress a subscription or a queue is stalled: see
	// Problems. Default 2 minutes.
	StalledAfter time.Duration
	// Holder is the name of this process's relays in the status, see relay.Options.
	Holder string
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Metrics is a prometheus.Collector, to be registered once. Safe for concurrent use.
type Metrics struct {
	o       Options
	own     *prometheus.Registry
	relays  relayMetrics
	workers workerMetrics
	ingest  IngestObserver

	mu      sync.Mutex
	watched map[subscription][]*RelayObserver // in this process; none for a subscription that the database forwards
	queues  map[string]bool                   // queues that this process works on
	tables  map[subscription]StatusOfTable
	ingests bool // this process accepts messages over HTTP

	reading sync.Mutex
	last    *reading // guarded by reading
	moves   map[string]move
}

// subscription is a subscription of an outbox, or of an adopted table by its name.
type subscription struct{ outbox, name string }

var _ prometheus.Collector = (*Metrics)(nil)

// New makes metrics. The caller registers them.
func New(o Options) *Metrics {
	o.StatusEvery = cmp.Or(o.StatusEvery, 10*time.Second)
	o.StatusTimeout = cmp.Or(o.StatusTimeout, 5*time.Second)
	o.StalledAfter = cmp.Or(o.StalledAfter, 2*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	own := prometheus.NewRegistry()
	f := factory{promauto.With(own)}
	f.buildInfo()
	return &Metrics{
		o: o, own: own, relays: newRelayMetrics(f), workers: newWorkerMetrics(f), ingest: newIngestMetrics(f),
		watched: map[subscription][]*RelayObserver{}, queues: map[string]bool{}, tables: map[subscription]StatusOfTable{}, moves: map[string]move{},
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.own.Describe(to)
	for _, d := range described {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.own.Collect(to)
	m.workers.running.collect(to)
	if m.o.Store != nil {
		m.status().collect(to, m.o.Groups)
	}
	if store, ok := m.o.Store.(retrier); ok {
		for reason, n := range store.Retries() {
			to <- constant(retries, prometheus.CounterValue, float64(n), reason)
		}
	}
}

// Waits returns only the histograms of how long messages and jobs of this process wait, without the status of a database.
func (m *Metrics) Waits() prometheus.Collector { return waits{m} }

type waits struct{ of *Metrics }

func (w waits) Describe(to chan<- *prometheus.Desc) {
	w.of.relays.confirm.Describe(to)
	w.of.workers.start.Describe(to)
}

func (w waits) Collect(to chan<- prometheus.Metric) {
	w.of.relays.confirm.Collect(to)
	w.of.workers.start.Collect(to)
}

// Relay returns the observer of a relay in this process: relay.Options.Observer.
func (m *Metrics) Relay(outbox, name string) *RelayObserver {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.relays.observer(labels(outbox, name)...)
	m.watched[subscription{outbox, name}] = append(m.watched[subscription{outbox, name}], o)
	return o
}

// Forwarding adds a subscription to Problems that the database itself forwards into a queue.
func (m *Metrics) Forwarding(outbox, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched[subscription{outbox, name}] = nil
}

// Worker returns the observer of a worker in this process: work.Options.Observer. For a work.Mux pass its Kinds: they are values of the label kind,
// and jobs of any other kind, which it releases, have the value other. Without kinds the label is empty.
func (m *Metrics) Worker(queue string, kinds ...string) work.Observer {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[queue] = true
	return m.workers.observer(labels(queue)[0], kinds)
}

// Ingest returns the observer of the server that accepts messages over HTTP in this process.
func (m *Metrics) Ingest() *IngestObserver {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ingests = true
	return &m.ingest
}

// Table adds an adopted table to the status.
func (m *Metrics) Table(table, name string, status StatusOfTable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[subscription{table, name}] = status
}

// buildInfo is about the module, whichever program uses it.
func (f factory) buildInfo() {
	of := prometheus.Labels{"version": "(devel)", "revision": "", "goversion": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range append(info.Deps, &info.Main) {
			if module.Path == "github.com/penstock/penstock" && module.Version != "" {
				of["version"] = module.Version
			}
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				of["revision"] = s.Value
			}
		}
	}
	f.NewGauge(prometheus.GaugeOpts{Name: "penstock_build_info", Help: "The version of Penstock, its source and Go's.", ConstLabels: of}).Set(1)
}

// factory makes the metrics of one Metrics.
type factory struct{ promauto.Factory }

// histogram has classic buckets, and native ones for servers that scrape those.
func (f factory) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour}, labels)
}

// labels are values that Prometheus accepts: UTF-8. Names from a database without an encoding may not
// be UTF-8, and are quoted.
func labels(values ...string) []string {
	for i, v := range values {
		if !utf8.ValidString(v) {
			values[i] = strconv.Quote(v)
		}
	}
	return values
}

// constant is the current value of a metric.
func constant(d *prometheus.Desc, kind prometheus.ValueType, v float64, values ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, kind, v, labels(values...)...)
}

func (f factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (f factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// Buckets of how long a call takes, and of how long a message or job waits.
var (
	ofCalls = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}
	ofWaits = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
)

var (
	_ relay.Observer = (*RelayObserver)(nil)
	_ StatusReader   = driver.Store(nil)
)

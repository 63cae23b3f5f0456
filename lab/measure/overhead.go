package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/trace"
	"github.com/penstock/penstock/trace/otlp"
	"github.com/penstock/penstock/work"
)

// OverheadConfig is how the cost of metrics and traces is measured.
type OverheadConfig struct {
	Setup
	Messages     int // of a backlog
	Jobs         int // of one
	PayloadBytes int
	Repeat       int           // pairs
	Sampled      int           // one message or job in this many is traced
	ScrapeEvery  time.Duration // of the metrics
}

// DefaultOverhead is measured unless flags say otherwise.
var DefaultOverhead = OverheadConfig{Messages: 100_000, Jobs: 500_000, PayloadBytes: 200, Repeat: 5, Sampled: 100, ScrapeEvery: 5 * time.Second}

// Validate refuses values that cannot be measured.
func (c *OverheadConfig) Validate() error {
	if c.Messages < 1 || c.Jobs < 1 || c.Repeat < 1 || c.Sampled < 1 || c.ScrapeEvery <= 0 || c.PayloadBytes < 0 || c.PayloadBytes > penstock.MaxPayloadBytes {
		return errors.New("--messages, --jobs, --repeat and --sampled must be at least 1, --scrape-every more than 0, --payload at most a payload's limit")
	}
	return nil
}

// OverheadResult is of a relay, and of work.Run where the store has queues.
type OverheadResult struct {
	Messages int         `json:"messages"`
	Jobs     int         `json:"jobs"`
	Relay    Overhead    `json:"relay"`
	Work     *Overhead   `json:"work,omitempty"`
	History  *Overhead   `json:"history,omitempty"` // of workers; observed: the queue keeps jobs that are done
	Spans    ObservedSum `json:"observed"`
}

// Overhead compares drains of a backlog that are observed with drains that are not; rates are messages or jobs per second, medians.
type Overhead struct {
	Alone    float64   `json:"alone"`
	Observed float64   `json:"observed"`
	Ratio    float64   `json:"ratio"` // the median of observed/alone, pair by pair
	Ratios   []float64 `json:"ratios"`
}

// ObservedSum shows that there was something to be paid for.
type ObservedSum struct {
	Scrapes    int64 `json:"scrapes"`
	TraceBytes int64 `json:"trace_bytes"` // that the collector got
}

// MeasureOverhead measures what a relay and workers lose by metrics that are scraped and traces that are sent.
func MeasureOverhead(ctx context.Context, cfg OverheadConfig) (result OverheadResult, err error) {
	rig, remove, err := newRig(cfg.Setup, &cfg)
	if err != nil {
		return result, err
	}
	defer remove()
	o := &overhead{rig: rig, cfg: cfg, metrics: metrics.New(metrics.Options{Store: cfg.Store, Holder: holder, Logger: cfg.Log})}
	stop, err := o.collector(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	result.Messages, result.Jobs = cfg.Messages, cfg.Jobs
	if result.Relay, err = o.pairs(ctx, "the relay", o.watched(o.relay)); err != nil {
		return result, err
	}
	if store, ok := cfg.Store.(driver.QueueStore); ok {
		result.Work = &Overhead{}
		*result.Work, err = o.pairs(ctx, "workers", o.watched(func(ctx context.Context, observed bool) (float64, error) { return o.work(ctx, store, observed, false) }))
		if _, keeps := cfg.Store.(driver.HistoryStore); keeps && err == nil {
			result.History = &Overhead{}
			*result.History, err = o.pairs(ctx, "workers with history", func(ctx context.Context, kept bool) (float64, error) { return o.work(ctx, store, false, kept) })
		}
	}
	result.Spans = ObservedSum{Scrapes: o.scrapes.Load(), TraceBytes: o.traced.Load()}
	return result, err
}

type overhead struct {
	*rig
	cfg             OverheadConfig
	metrics         *metrics.Metrics
	scrapes, traced atomic.Int64
}

// collector takes spans, as one of OpenTelemetry does, and has this process send them.
func (o *overhead) collector(ctx context.Context) (stop func() error, err error) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		o.traced.Add(n)
	}))
	const endpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	before, was := os.LookupEnv(endpoint)
	if err := os.Setenv(endpoint, server.URL); err != nil {
		return nil, err
	}
	provider := otel.GetTracerProvider()
	last, err := otlp.Start(ctx)
	return func() error {
		defer server.Close()
		otel.SetTracerProvider(provider)
		if was {
			return errors.Join(last(), os.Setenv(endpoint, before))
		}
		return errors.Join(last(), os.Unsetenv(endpoint))
	}, err
}

// pairs takes turns at who is first, for what comes second may find another machine.
func (o *overhead) pairs(ctx context.Context, who string, drain func(ctx context.Context, observed bool) (float64, error)) (result Overhead, err error) {
	var rates [2][]float64
	for i := range o.cfg.Repeat {
		o.Progress(fmt.Sprintf("%s: pair %d of %d", who, i+1, o.cfg.Repeat))
		for turn := range 2 {
			observed := (i + turn) % 2
			rate, err := drain(ctx, observed == 1)
			if err != nil {
				return result, err
			}
			rates[observed] = append(rates[observed], rate)
		}
		result.Ratios = append(result.Ratios, rates[1][i]/rates[0][i])
	}
	result.Alone, result.Observed, result.Ratio = median(rates[0]), median(rates[1]), median(result.Ratios)
	return result, nil
}

// watched has the metrics scraped meanwhile, if it is observed.
func (o *overhead) watched(drain func(ctx context.Context, observed bool) (float64, error)) func(ctx context.Context, observed bool) (float64, error) {
	return func(ctx context.Context, observed bool) (rate float64, err error) {
		if !observed {
			return drain(ctx, false)
		}
		server, err := o.metrics.Serve("127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		scraping, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- o.scrape(scraping, "http://"+server.Addr+"/metrics") }()
		rate, err = drain(ctx, true)
		stop()
		return rate, errors.Join(err, <-ended, server.Close())
	}
}

// scrape does as Prometheus does until ctx ends.
func (o *overhead) scrape(ctx context.Context, url string) error {
	for next := time.Now().Add(o.cfg.ScrapeEvery / 2); sleepUntil(ctx, next) == nil; next = next.Add(o.cfg.ScrapeEvery) {
		answer, err := http.Get(url)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK {
			return errors.Join(err, fmt.Errorf("scraping the metrics: %s", answer.Status))
		}
		o.scrapes.Add(1)
	}
	return nil
}

// headers are a producer's that has sampled one trace in the given number. Without observers they are carried alike.
func (o *overhead) headers(n int) map[string]string {
	flags := "00"
	if n%o.cfg.Sampled == 0 {
		flags = "01"
	}
	return map[string]string{"traceparent": fmt.Sprintf("00-%032x-%016x-%s", n+1, n+1, flags)}
}

func (o *overhead) relay(ctx context.Context, observed bool) (rate float64, err error) {
	err = o.inNewOutbox(ctx, func(ctx context.Context) (err error) {
		load := load{topic: "bench", keyName: "key-", keys: 1000, payload: o.cfg.PayloadBytes}
		for first := 0; first < o.cfg.Messages; first += chunk {
			messages := load.messages(first, min(chunk, o.cfg.Messages-first))
			for i := range messages {
				messages[i].Headers = o.headers(first + i)
			}
			if err := o.Store.Publish(ctx, o.outbox, messages...); err != nil {
				return fmt.Errorf("publishing the backlog: %w", err)
			}
		}
		q, err := o.open(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, q.close(ctx)) }()
		count := newCounter(o.cfg.Messages)
		cfg := relaying{sink: q.sink, Options: relay.Options{Observer: count}}
		if observed {
			cfg.Observer = trace.Relay(o.outbox, subscription, both{count, o.metrics.Relay(o.outbox, subscription)})
		}
		stop, took, err := o.drained(ctx, count, cfg)
		if err != nil {
			return err
		}
		rate = float64(o.cfg.Messages) / took.Seconds()
		return stop()
	})
	return rate, err
}

// both passes the relay's events to two observers.
type both struct {
	*counter
	other relay.Observer
}

func (b both) Sent(s relay.Send) { b.counter.Sent(s); b.other.Sent(s) }
func (b both) Fetched(n int, took time.Duration) {
	b.counter.Fetched(n, took)
	b.other.Fetched(n, took)
}
func (b both) Settled(n int, took time.Duration) {
	b.counter.Settled(n, took)
	b.other.Settled(n, took)
}
func (b both) Parked(n int)            { b.counter.Parked(n); b.other.Parked(n) }
func (b both) Dead(n int)              { b.counter.Dead(n); b.other.Dead(n) }
func (b both) InFlight(n int)          { b.counter.InFlight(n); b.other.InFlight(n) }
func (b both) Sink(is relay.SinkState) { b.counter.Sink(is); b.other.Sink(is) }
func (b both) Lease(held bool)         { b.counter.Lease(held); b.other.Lease(held) }

func (o *overhead) work(ctx context.Context, store driver.QueueStore, observed, kept bool) (rate float64, err error) {
	o.phases++
	name := fmt.Sprintf("%s_%d", o.Outbox, o.phases)
	if err := store.CreateQueue(ctx, name, penstock.FIFO); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.DropQueue(context.WithoutCancel(ctx), name)) }()
	if kept {
		day := 24 * time.Hour
		if err := store.SetQueue(ctx, name, penstock.QueueSettings{KeepDone: &day}); err != nil {
			return 0, err
		}
	}
	queue := store.DriverQueue(name)
	payload := bytes.Repeat([]byte("x"), o.cfg.PayloadBytes)
	for first := 0; first < o.cfg.Jobs; first += chunk {
		jobs := make([]penstock.NewJob, min(chunk, o.cfg.Jobs-first))
		for i := range jobs {
			jobs[i] = penstock.NewJob{Payload: payload, Headers: o.headers(first + i)}
		}
		if _, err := queue.Enqueue(ctx, jobs...); err != nil {
			return 0, fmt.Errorf("enqueueing the backlog: %w", err)
		}
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	d := &drained{jobs: int64(o.cfg.Jobs), stop: stop, start: time.Now()}
	options := work.Options{Worker: holder}
	if observed {
		options.Observer, options.Middleware = o.metrics.Worker(name), []func(work.Handler) work.Handler{trace.Worker(name)}
	}
	err = work.Run(working, queue, func(context.Context, penstock.Job) error { d.handle(); return nil }, options)
	return over(float64(d.done.Load()), time.Duration(d.last.Load()).Seconds()), errors.Join(err, ctx.Err())
}

package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// OutageConfig is one run of outage.
type OutageConfig struct {
	Setup
	Rate      int           `help:"messages per second, one per transaction" range:"1.."`
	Writers   int           `help:"producers that share the rate" range:"1..100"`
	Before    time.Duration `help:"how long to measure with the broker up" range:"1ms.."`
	Outage    time.Duration `help:"how long the broker is dead" range:"1ms.."`
	CeilingOf int           `help:"messages per measurement of the ceiling" range:"1.."`
	Payload   int           `help:"bytes of each payload" range:"20..67108864"`
}

// OutageResult is the result of one outage. Rates are messages per second.
type OutageResult struct {
	// By is how the broker died: "connections reset", or "sink unavailable" where
	// there is no connection to refuse.
	By string `json:"outage_by"`
	// How long a producer's commit took, with the broker up and during the
	// outage.
	BeforeP50MS float64 `json:"before_p50_ms"`
	BeforeP99MS float64 `json:"before_p99_ms"`
	OutageP50MS float64 `json:"outage_p50_ms"`
	OutageP99MS float64 `json:"outage_p99_ms"`
	Arrived     float64 `json:"arrived_per_second"` // in the outage
	Backlog     int     `json:"backlog"`            // at its end
	// ResumedMS is from the broker's return to the first confirm. Drain is the
	// rate from then until as many were confirmed as had been committed when the
	// broker returned. Ceiling is the mean of what the broker confirmed from
	// memory before and after all this, and Ratio is drain/ceiling.
	ResumedMS float64 `json:"resumed_after_ms"`
	Drain     float64 `json:"drain_per_second"`
	Ceiling   float64 `json:"ceiling_per_second"`
	Ratio     float64 `json:"ratio"`
	// RatioFromReturn also counts the time to the first confirm.
	RatioFromReturn float64 `json:"ratio_from_return"`
	// AttemptsSpent sums up the attempts of confirmed messages beyond their first
	// attempt, and one for each dead letter and each parked key.
	AttemptsSpent int64 `json:"attempts_spent"`
	DeadLetters   int64 `json:"dead_letters"`
	Parked        int64 `json:"parked"`
	BeforeUse     Usage `json:"before_use"`
	OutageUse     Usage `json:"outage_use"`
	DrainUse      Usage `json:"drain_use"`
	Check         Check `json:"check"`
}

// DefaultOutage is measured unless flags say otherwise.
var DefaultOutage = OutageConfig{Rate: 1_000, Writers: 8, Before: 30 * time.Second, Outage: 5 * time.Minute, CeilingOf: 150_000, Payload: 200}

// Conns is how many the store needs: one for each writer, and others for the relay.
func (c *OutageConfig) Conns() int { return c.Writers + 4 }

// Outage measures producers and relay while the broker is dead for a while, and
// after.
func Outage(ctx context.Context, cfg OutageConfig) (_ OutageResult, err error) {
	r := &outageRun{
		rig: newRig(cfg.Setup), cfg: cfg, done: make(chan struct{}),
		// Each writer has separate keys: within a key, commits are in the order of their numbers.
		load: load{topic: "bench", keyName: "key-", keys: 125 * cfg.Writers, payload: cfg.Payload},
	}
	for i := range r.took {
		r.took[i] = newHistogram()
	}
	r.By = "sink unavailable"
	if r.link, err = newLink(cfg.SinkURL); err != nil {
		return r.OutageResult, err
	}
	if r.link != nil {
		defer r.link.Close()
		r.By = "connections reset"
	}
	err = r.inNewOutbox(ctx, r.run)
	return r.OutageResult, err
}

// outageRun is an outage, and its producers: they commit one message per transaction at a steady rate.
type outageRun struct {
	*rig
	OutageResult
	cfg  OutageConfig
	link *link // nil: the valve plays dead
	load load

	stage     atomic.Int32
	committed atomic.Int64
	ending    atomic.Bool
	done      chan struct{} // once the last commit is done
	mu        sync.Mutex
	took      [stages]histogram
}

// The stage in which a commit was made.
const (
	between int32 = iota // does not count
	brokerUp
	brokerDead
	stages
)

func (r *outageRun) run(ctx context.Context) error {
	before, err := r.ceiling(ctx)
	if err != nil {
		return err
	}
	if err := r.experiment(ctx); err != nil {
		return err
	}
	after, err := r.ceiling(ctx)
	r.Ceiling = (before + after) / 2
	r.Ratio, r.RatioFromReturn = over(r.Drain, r.Ceiling), over(r.RatioFromReturn, r.Ceiling)
	return err
}

// openLinked opens a sink behind the link, if there is one: the ceiling is also measured through
// it.
func (r *outageRun) openLinked(ctx context.Context) (*queue, *valve, error) {
	var reach func(string) (string, error)
	if r.link != nil {
		reach = r.link.reach
	}
	q, err := r.open(ctx, reach)
	if err != nil {
		return nil, nil, err
	}
	return q, &valve{
		Sink: q.sink, confirmed: newLedger(r.load.keys, nil),
		refuse: func(*penstock.Message) bool { return true },
		err:    penstock.Unavailable(errors.New("the benchmark plays a dead broker")),
	}, nil
}

func (r *outageRun) ceiling(ctx context.Context) (rate float64, err error) {
	r.progress("the broker's ceiling")
	q, v, err := r.openLinked(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()
	if rate, err = r.brokerCeiling(ctx, v, r.load.messages, r.cfg.CeilingOf, 0); err != nil {
		return 0, fmt.Errorf("measuring the broker's ceiling: %w", err)
	}
	return rate, nil
}

// experiment: the broker is up, dead, and up again.
func (r *outageRun) experiment(ctx context.Context) (err error) {
	q, v, err := r.openLinked(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()
	stop, err := r.startRelay(ctx, relaying{sink: v})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go r.produce(ctx, cancel)
	defer r.stopProducers()
	if err = r.upAndDead(ctx, v); err == nil {
		err = r.drainBacklog(ctx, v)
	}
	if err != nil {
		r.resume(v)
		if c := context.Cause(ctx); c != nil { // why the producers ended
			return c
		}
		return err
	}
	return r.settle(ctx, v, q)
}

// produce continues until stopProducers, or until a commit fails: then failed gets the reason.
func (r *outageRun) produce(ctx context.Context, failed context.CancelCauseFunc) {
	defer close(r.done)
	err := steadily(ctx, r.cfg.Writers, r.cfg.Rate, func(i int) (bool, error) {
		if r.ending.Load() {
			return false, nil
		}
		msgs, at, start := r.load.messages(i, 1), r.stage.Load(), time.Now()
		if err := r.Store.Publish(ctx, r.outbox, msgs...); err != nil {
			return false, err
		}
		r.committed.Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.took[at].add(time.Since(start))
		return true, nil
	})
	if err != nil {
		failed(err)
	}
}

// stopProducers returns when the last commit is done.
func (r *outageRun) stopProducers() {
	r.ending.Store(true)
	<-r.done
}

// commits of a stage, in milliseconds.
func (r *outageRun) commits(stage int32) (p50, p99 float64) {
	return r.took[stage].quantileMS(0.5), r.took[stage].quantileMS(0.99)
}

// during measures what is committed and used in a stage of the given length.
func (r *outageRun) during(ctx context.Context, stage int32, length time.Duration, begin func()) (Usage, error) {
	usage := startUsage()
	begin()
	r.stage.Store(stage)
	defer r.stage.Store(between)
	err := sleepUntil(ctx, time.Now().Add(length))
	return usage.stop(), err
}

// upAndDead lets the producers commit with the broker up, then without it.
func (r *outageRun) upAndDead(ctx context.Context, v *valve) (err error) {
	r.progress("%d messages/s with the broker up, for %s", r.cfg.Rate, r.cfg.Before)
	// Connections are made and caches are cold for a moment.
	if err := sleepUntil(ctx, time.Now().Add(min(r.cfg.Before/10, 3*time.Second))); err != nil {
		return err
	}
	if r.BeforeUse, err = r.during(ctx, brokerUp, r.cfg.Before, func() {}); err != nil {
		return err
	}
	r.progress("the broker is dead for %s", r.cfg.Outage)
	var start time.Time
	var committed int64
	r.OutageUse, err = r.during(ctx, brokerDead, r.cfg.Outage, func() {
		if r.link != nil {
			r.link.Refuse()
		} else {
			v.shut.Store(true)
		}
		start, committed = time.Now(), r.committed.Load()
	})
	r.Arrived = over(float64(r.committed.Load()-committed), time.Since(start).Seconds())
	return err
}

// resume brings the broker back.
func (r *outageRun) resume(v *valve) {
	v.shut.Store(false)
	if r.link != nil {
		r.link.Resume()
	}
}

// drainBacklog brings the broker back and measures until the backlog is gone.
func (r *outageRun) drainBacklog(ctx context.Context, v *valve) error {
	r.progress("the broker is back, the backlog drains")
	r.stopProducers()
	usage, l := startUsage(), v.confirmed
	committed := int(r.committed.Load())
	r.Backlog = committed - l.total()
	l.expect(committed)
	start := time.Now()
	r.resume(v)
	last, err := l.await(ctx)
	r.DrainUse = usage.stop()
	if err != nil {
		return fmt.Errorf("draining the backlog: %w", err)
	}
	r.ResumedMS = l.resumed.Sub(start).Seconds() * 1000
	r.Drain = over(float64(l.counted-l.before), last.Sub(l.resumed).Seconds())
	r.RatioFromReturn = over(float64(r.Backlog), last.Sub(start).Seconds()) // run divides by the ceiling
	return nil
}

// settle waits until all is delivered, with the producers stopped, and looks what
// the outage has left.
func (r *outageRun) settle(ctx context.Context, v *valve, q *queue) error {
	_, sub, err := r.awaitStatus(ctx, "everything is settled", 100*time.Millisecond, func(s admin.SubscriptionStatus) bool { return s.Backlog == 0 })
	if err != nil {
		return err
	}
	r.BeforeP50MS, r.BeforeP99MS = r.commits(brokerUp)
	r.OutageP50MS, r.OutageP99MS = r.commits(brokerDead)
	r.DeadLetters, r.Parked = sub.DeadLetters, sub.Parked
	r.AttemptsSpent = v.confirmed.spent() + sub.DeadLetters + sub.ParkedKeys
	r.Check, err = v.check(ctx, q, int(r.committed.Load()), "the outage")
	return err
}

package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// outageRun is one outage. It fills in its OutageRun.
type outageRun struct {
	*rig
	OutageRun
	cfg   OutageConfig
	link  *link // nil: the valve plays dead
	load  load
	round string
}

func (r *outageRun) run(ctx context.Context) error {
	before, err := r.ceiling(ctx)
	if err != nil {
		return err
	}
	if err := r.experiment(ctx); err != nil {
		return err
	}
	after, err := r.ceiling(ctx)
	if err != nil {
		return err
	}
	r.Ceiling = (before + after) / 2
	r.Ratio, r.RatioFromReturn = r.Drain/r.Ceiling, r.RatioFromReturn/r.Ceiling
	if !r.Check.OK() {
		return &CheckError{Check: r.Check, When: r.round}
	}
	return nil
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
	r.Progress(r.round + ": the broker's ceiling")
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
	stopRelay, err := r.startRelay(ctx, relaying{sink: v})
	if err != nil {
		return err
	}
	var once sync.Once
	stop := func() (err error) { once.Do(func() { err = stopRelay() }); return err }
	defer func() { err = errors.Join(err, stop()) }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := r.startProducers(ctx, cancel)
	defer p.stop()
	if err := r.upAndDead(ctx, p, v); err != nil {
		r.resume(v)
		return cause(ctx, err)
	}
	if err := r.drainBacklog(ctx, p, v); err != nil {
		return cause(ctx, err)
	}
	p.stop()
	return r.settle(ctx, p, v, q)
}

// cause is why the producers ended ctx, if they did; else err.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// upAndDead lets the producers commit with the broker up, then without it.
func (r *outageRun) upAndDead(ctx context.Context, p *producers, v *valve) error {
	r.Progress(fmt.Sprintf("%s: %d messages/s with the broker up, for %s", r.round, r.cfg.Rate, r.cfg.Before))
	// Connections are made and caches are cold for a moment.
	if err := sleepUntil(ctx, time.Now().Add(min(r.cfg.Before/10, 3*time.Second))); err != nil {
		return err
	}
	usage := startUsage()
	p.begin(brokerUp)
	if err := sleepUntil(ctx, time.Now().Add(r.cfg.Before)); err != nil {
		return err
	}
	p.begin(between)
	r.BeforeUse = usage.stop()

	r.Progress(fmt.Sprintf("%s: the broker is dead for %s", r.round, r.cfg.Outage))
	usage = startUsage()
	if r.link != nil {
		r.link.Refuse()
	} else {
		v.shut.Store(true)
	}
	p.begin(brokerDead)
	start, committed := time.Now(), p.committed.Load()
	if err := sleepUntil(ctx, start.Add(r.cfg.Outage)); err != nil {
		return err
	}
	p.begin(between)
	r.OutageSeconds = time.Since(start).Seconds()
	r.Arrived = float64(p.committed.Load()-committed) / r.OutageSeconds
	r.OutageUse = usage.stop()
	return nil
}

// resume brings the broker back.
func (r *outageRun) resume(v *valve) {
	v.shut.Store(false)
	if r.link != nil {
		r.link.Resume()
	}
}

// drainBacklog brings the broker back and measures until the backlog is gone.
func (r *outageRun) drainBacklog(ctx context.Context, p *producers, v *valve) error {
	r.Progress(r.round + ": the broker is back, the backlog drains")
	if !r.cfg.KeepArriving {
		p.stop()
	}
	usage := startUsage()
	committed := int(p.committed.Load())
	r.Backlog = committed - v.confirmed.total()
	v.confirmed.expect(committed)
	start := time.Now()
	r.resume(v)
	last, err := v.confirmed.await(ctx)
	r.DrainUse = usage.stop()
	if err != nil {
		return fmt.Errorf("draining the backlog: %w", err)
	}
	l := v.confirmed
	r.ResumedMS = l.resumed.Sub(start).Seconds() * 1000
	r.Drain = over(float64(l.counted-l.before), last.Sub(l.resumed).Seconds())
	r.RatioFromReturn = over(float64(r.Backlog), last.Sub(start).Seconds()) // run divides by the ceiling
	return nil
}

// settle waits until all is delivered, with the producers stopped, and looks what
// the outage has left.
func (r *outageRun) settle(ctx context.Context, p *producers, v *valve, q *queue) error {
	_, sub, err := r.awaitStatus(ctx, "everything is settled", 100*time.Millisecond, func(s admin.SubscriptionStatus) bool { return s.Backlog == 0 })
	if err != nil {
		return err
	}
	r.BeforeP50MS, r.BeforeP99MS = p.latency(brokerUp)
	r.OutageP50MS, r.OutageP99MS = p.latency(brokerDead)
	r.DeadLetters, r.Parked = sub.DeadLetters, sub.Parked
	r.AttemptsSpent = v.confirmed.spent() + sub.DeadLetters + sub.ParkedKeys
	r.Check, err = v.check(ctx, q, int(p.committed.Load()))
	return err
}

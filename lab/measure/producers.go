package measure

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// stage is when a commit was made.
type stage int32

const (
	between stage = iota // does not count
	brokerUp
	brokerDead
	stages
)

// producers commit one message per transaction at a steady rate.
type producers struct {
	stage     atomic.Int32
	committed atomic.Int64
	ending    atomic.Bool
	done      chan struct{}

	mu   sync.Mutex
	took [stages][]float64 // milliseconds
}

// startProducers continues until stop, or until a commit fails: then failed gets the reason.
func (r *outageRun) startProducers(ctx context.Context, failed context.CancelCauseFunc) *producers {
	p := &producers{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		err := steadily(ctx, r.cfg.Writers, r.cfg.Rate, func(i int) (bool, error) {
			if p.ending.Load() {
				return false, nil
			}
			msgs, at := r.load.messages(i, 1), stage(p.stage.Load())
			start := time.Now()
			if err := r.Store.Publish(ctx, r.outbox, msgs...); err != nil {
				return false, err
			}
			p.note(at, time.Since(start))
			return true, nil
		})
		if err != nil {
			failed(err)
		}
	}()
	return p
}

func (p *producers) note(at stage, took time.Duration) {
	p.committed.Add(1)
	if at == between {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took[at] = append(p.took[at], took.Seconds()*1000)
}

// begin says that what is committed from now on belongs to a stage.
func (p *producers) begin(s stage) { p.stage.Store(int32(s)) }

// stop returns when the last commit is done.
func (p *producers) stop() {
	p.ending.Store(true)
	<-p.done
}

// latency of the commits of one stage, in milliseconds.
func (p *producers) latency(s stage) (p50, p99 float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.took[s])
	return quantile(p.took[s], 0.5), quantile(p.took[s], 0.99)
}

package measure

import (
	"context"
	"fmt"
	"time"
)

// steadyProducers share a rate: each commits one job per transaction with one INSERT, and
// waits for the answer before its next.
type steadyProducers struct {
	sessions []*session
	rate     int
	load     load
}

// producers connects the given number, to a table that c has made.
func (cfg SteadyQueueConfig) producers(ctx context.Context, c contender) (*steadyProducers, error) {
	p := &steadyProducers{rate: cfg.Rate, load: load{payload: cfg.PayloadBytes}}
	for range cfg.Writers {
		s, err := c.connect(ctx)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("connecting the producers: %w", err)
		}
		p.sessions = append(p.sessions, s)
		if err := s.prepare(c.sql, "enqueue"); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *steadyProducers) close() {
	for _, s := range p.sessions {
		s.close()
	}
}

// produce commits jobs numbered from 0 and reports each once its commit is answered.
func (p *steadyProducers) produce(ctx context.Context, total int, committed func(i int)) error {
	return steadily(ctx, len(p.sessions), p.rate, func(i int) (more bool, err error) {
		if i >= total {
			return false, nil
		}
		_, err = p.sessions[i%len(p.sessions)].run("enqueue", p.load.messages(i, 1)[0].Payload)
		committed(i)
		return true, err
	})
}

// floor is the machine's use for producers alone. They are the same ones, at the same rate,
// into a hand-written table with a primary key, for a sixth of the time and no longer than 5 s. CPU
// seconds per 100,000 jobs; nil where it cannot be measured.
func (cfg SteadyQueueConfig) floor(ctx context.Context) (per *float64, err error) {
	c := contender{Database: cfg.Database, label: "the hand-written table", sql: readSQL("plainqueue", cfg.words(cfg.Name+"_floor"))}
	total := max(1, int(min(5*time.Second, cfg.For/6).Seconds()*float64(cfg.Rate)))
	return per, c.in(ctx, func(*session) error {
		p, err := cfg.producers(ctx, c)
		if err != nil {
			return err
		}
		defer p.close()
		nothing := func(int) {}
		if err := p.produce(ctx, total/10, nothing); err != nil { // plans and caches
			return err
		}
		c.progress("producers alone, into a table without a queue")
		cpu, _, measured := machineCPU()
		if err := p.produce(ctx, total, nothing); err != nil || !measured {
			return err
		}
		after, _, _ := machineCPU()
		per = per100k(after-cpu, total)
		return nil
	})
}

func per100k(cpu time.Duration, jobs int) *float64 {
	per := cpu.Seconds() / float64(jobs) * 100_000
	return &per
}

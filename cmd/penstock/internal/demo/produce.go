package demo

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Produce is a run of business transactions.
type Produce struct {
	Flights []Flight
	// Producers commit concurrently; the flights of one aircraft stay with one
	// of them, in the order of the data.
	Producers int
	// Rollback is the share of transactions that publish and then roll back. Seed decides which.
	Rollback float64
	Seed     uint64
	// Rate is how many transactions all producers together begin each second; 0 means as many as
	// possible.
	Rate float64

	committed, rolledBack atomic.Int64
}

// Counts returns how many transactions were committed and rolled back so far.
func (p *Produce) Counts() (committed, rolledBack int64) {
	return p.committed.Load(), p.rolledBack.Load()
}

// Commits measures for a while how many nearly empty transactions the same number of producers commit per second.
func (p *Produce) Commits(ctx context.Context, airline Airline) (float64, error) {
	const while = 300 * time.Millisecond
	var done atomic.Int64
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range max(p.Producers, 1) {
		group.Go(func() error {
			for time.Since(start) < while {
				if err := airline.Commit(ctx); err != nil {
					return fmt.Errorf("a transaction with next to nothing in it: %w", err)
				}
				done.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(done.Load()) / time.Since(start).Seconds(), err
}

// Run runs the transaction of every flight. It stops at the first error.
func (p *Produce) Run(ctx context.Context, airline Airline) error {
	shares := make([][]*Flight, max(p.Producers, 1))
	for i := range p.Flights {
		f := &p.Flights[i]
		who := f.ID // unkeyed flights go to every producer in turn
		if f.Tailnum != "" {
			h := fnv.New32a()
			h.Write([]byte(f.Tailnum))
			who = int64(h.Sum32())
		}
		share := &shares[who%int64(len(shares))]
		*share = append(*share, f)
	}
	group, ctx := errgroup.WithContext(ctx)
	began, begun := time.Now(), atomic.Int64{}
	for _, share := range shares {
		group.Go(func() error {
			for _, f := range share {
				if p.Rate > 0 {
					due := began.Add(time.Duration(float64(begun.Add(1)) / p.Rate * float64(time.Second)))
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Until(due)):
					}
				}
				rollback := rollsBack(p.Seed, f.ID, p.Rollback)
				if err := airline.Depart(ctx, f, rollback); err != nil {
					return err
				}
				if rollback {
					p.rolledBack.Add(1)
				} else {
					p.committed.Add(1)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

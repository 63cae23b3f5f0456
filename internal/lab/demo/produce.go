package demo

import (
	"context"
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
	// Rollback is the share of transactions that publish and then roll back.
	// Seed decides which.
	Rollback float64
	Seed     uint64
	// Rate is how many transactions begin each second, of all producers; 0: as many as can.
	Rate float64

	committed, rolledBack atomic.Int64
}

// Counts tells how many transactions were committed and rolled back so far.
func (p *Produce) Counts() (committed, rolledBack int64) {
	return p.committed.Load(), p.rolledBack.Load()
}

// Run runs every flight's transaction, or stops at the first error.
func (p *Produce) Run(ctx context.Context, airline Airline) error {
	shares := make([][]*Flight, max(p.Producers, 1))
	for i := range p.Flights {
		f := &p.Flights[i]
		who := f.ID // unkeyed flights go to everybody in turn
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

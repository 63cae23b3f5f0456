package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// hands is how many faults can be under way at once.
const hands = 3

// director deals faults from a shuffled deck, so that each kind comes up, in an
// order that the seed decides. What else happens at that moment it does not.
type director struct {
	chronicle *chronicle
	newDeck   func(*rand.Rand) []fault
	seed      uint64

	mu    sync.Mutex
	deck  []fault
	deals *rand.Rand
	busy  map[string]bool // targets
}

// run continues until ctx ends and returns when everything is put right. An error is one of the
// rig's: a server that does not start again.
func (d *director) run(ctx context.Context) error {
	d.deals = rand.New(rand.NewPCG(d.seed, 0))
	d.busy = map[string]bool{}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for hand := range hands {
		random := rand.New(rand.NewPCG(d.seed, uint64(hand)+1))
		all.Go(func() {
			for {
				sleep(ctx, between(random, 200*time.Millisecond, 2500*time.Millisecond))
				if ctx.Err() != nil {
					return
				}
				if err := d.one(ctx, random); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil && err != context.DeadlineExceeded && err != context.Canceled {
		return err
	}
	return nil
}

func (d *director) one(ctx context.Context, random *rand.Rand) error {
	f, ok := d.deal()
	if !ok {
		return nil
	}
	defer d.done(f)
	e := d.chronicle.begin(f.name, f.target, f.blast)
	happened, err := f.do(ctx, random, func() { d.chronicle.struck(e) })
	d.chronicle.end(e, happened)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", f.name, f.target, err)
	}
	return nil
}

// deal takes the next fault whose target is free.
func (d *director) deal() (fault, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.deck) == 0 {
		d.deck = d.newDeck(d.deals)
	}
	for i, f := range d.deck {
		if !d.busy[f.target] {
			d.busy[f.target] = true
			d.deck = slices.Delete(d.deck, i, i+1)
			return f, true
		}
	}
	return fault{}, false
}

func (d *director) done(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, f.target)
}

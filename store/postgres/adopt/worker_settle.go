package adopt

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Settle implements driver.Source. Each batch is a transaction; those of one call do
// not take effect together. A claim holds its rows until it has every verdict: those that
// come before are written when it ends, and claims are small enough for that to be soon.
func (w *Worker) Settle(ctx context.Context, _ uint64, settled ...driver.Settled) error {
	if w.isClosed() {
		return penstock.ErrClosed
	}
	errs := make([]error, len(settled))
	var all sync.WaitGroup
	for i, b := range settled {
		w.mu.Lock()
		p := w.pending[b.Batch.Number]
		if p != nil && p.note(b.Verdicts) {
			known := p.known
			all.Go(func() { errs[i] = w.settleClaim(ctx, p, known) })
		}
		w.mu.Unlock()
	}
	all.Wait()
	return errors.Join(errs...)
}

// note keeps verdicts until the claim has them all, and reports whether it has.
func (p *pending) note(verdicts []driver.Verdict) bool {
	p.noted = true
	if verdicts == nil || len(verdicts) != len(p.rows) {
		p.known = verdicts
		return true
	}
	if p.known = slices.Clone(p.known); p.known == nil {
		p.known = slices.Repeat([]driver.Verdict{{Outcome: driver.Undecided}}, len(p.rows))
	}
	left := false
	for i, v := range verdicts {
		if v.Outcome != driver.Undecided {
			p.known[i] = v
		}
		left = left || p.known[i].Outcome == driver.Undecided
	}
	return !left
}

func (w *Worker) settleClaim(ctx context.Context, p *pending, verdicts []driver.Verdict) error {
	over, err := w.endClaim(ctx, p, true, verdicts)
	switch {
	case over: // it was given up
		return nil
	case err != nil:
		w.giveUp()
		return w.t.explain(err)
	}
	w.claims.Lock()
	w.careful = false
	w.resize(len(p.rows), time.Since(p.since))
	w.claims.Unlock()
	return nil
}

// endClaim writes the verdicts in the claim's transaction, if there are any, and ends it. Rows without a verdict are free again.
func (w *Worker) endClaim(ctx context.Context, p *pending, some bool, verdicts []driver.Verdict) (over bool, err error) {
	var done work
	over, err = p.claim.end(func(tx pgx.Tx) error {
		if !some {
			return nil
		}
		for i := range p.rows {
			p.rows[i].outOfOrder = true
		}
		if err := done.addBatch(p, verdicts); err != nil {
			return err
		}
		if _, err := w.send(ctx, tx, &done); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	if over {
		return true, nil
	}
	if err == nil {
		w.settledNow(&done, []*pending{p})
	}
	w.release()
	w.returned(p)
	return false, err
}

// giveUp ends all claims, because one has grown old or failed: the relay has to forget them all.
// Rows with a verdict are settled.
func (w *Worker) giveUp() {
	w.fetching.Lock()
	defer w.fetching.Unlock()
	w.rewound = true
	w.claims.Lock()
	w.careful = true
	w.claims.Unlock()
	if n := w.endAll(); n > 0 {
		w.t.log.Warn("claims were given up; their rows are claimed again", "claims", n, "claim_timeout", w.m.config.ClaimTimeout)
	}
}

// endAll ends all claims, with the verdicts that there are, and returns how many there were.
func (w *Worker) endAll() (ended int) {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.pending))
	w.mu.Unlock()
	for _, p := range all {
		w.mu.Lock()
		some, known := p.noted, p.known
		w.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		over, err := w.endClaim(ctx, p, some, known)
		cancel()
		if err != nil {
			w.t.log.Warn("the verdicts on a part of a claim could not be written; its rows are delivered again", "err", w.t.explain(err))
		}
		if !over {
			ended++
		}
	}
	return ended
}

// returned notes that the rows of a claim that has ended are free again.
func (w *Worker) returned(p *pending) {
	ids := p.left
	w.mu.Lock()
	delete(w.pending, p.number)
	for i := range p.rows {
		if p.rows[i].done {
			continue
		}
		delete(w.inFlight, p.rows[i].id)
		if !p.rows[i].outOfBand {
			ids = append(ids, p.rows[i].id)
		}
	}
	w.mu.Unlock()
	w.late.add(inFront, ids)
}

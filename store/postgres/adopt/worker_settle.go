package adopt

import (
	"context"
	"errors"
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
	done, over, err := w.endClaim(ctx, p, verdicts)
	switch {
	case over: // it was given up
		return nil
	case err != nil:
		w.release()
		w.returned(p)
		w.giveUp()
		return w.t.explain(err)
	}
	w.settledNow(done, []*pending{p})
	w.release()
	w.claims.Lock()
	w.careful = false
	w.resize(len(p.rows), time.Since(p.since))
	w.claims.Unlock()
	w.late.add(atTheEnd, p.left)
	return nil
}

// endClaim writes the verdicts that there are in the claim's transaction, and ends it.
func (w *Worker) endClaim(ctx context.Context, p *pending, verdicts []driver.Verdict) (done *work, over bool, err error) {
	done = &work{}
	for i := range p.rows {
		p.rows[i].outOfOrder = true
	}
	if err := done.addBatch(p, verdicts); err != nil {
		return nil, false, err
	}
	err, over = p.claim.end(func(tx pgx.Tx) error {
		if err := w.sendIn(ctx, tx, done); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	return done, over, err
}

// giveUp ends all claims, because one has grown old or failed: the relay has to forget them all.
// Rows with a verdict are settled.
func (w *Worker) giveUp() {
	w.claims.Lock()
	w.rewound, w.careful = true, true
	w.claims.Unlock()
	if n := w.endAll(); n > 0 {
		w.t.log.Warn("claims were given up; their rows are claimed again", "claims", n, "claim_timeout", w.m.config.ClaimTimeout)
	}
}

// endAll ends all claims and returns how many there were.
func (w *Worker) endAll() (ended int) {
	w.mu.Lock()
	var all []*pending
	for _, p := range w.pending {
		all = append(all, p)
	}
	w.mu.Unlock()
	for _, p := range all {
		w.mu.Lock()
		known := p.known
		w.mu.Unlock()
		var over bool
		if known == nil {
			_, over = p.claim.end(nil)
		} else {
			over = w.endPart(p, known)
		}
		if over {
			continue
		}
		ended++
		w.release()
		w.returned(p)
	}
	return ended
}

// endPart ends a claim that has only some of its verdicts.
func (w *Worker) endPart(p *pending, known []driver.Verdict) (over bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	done, over, err := w.endClaim(ctx, p, known)
	switch {
	case over:
	case err != nil:
		w.t.log.Warn("the verdicts on a part of a claim could not be written; its rows are delivered again", "err", w.t.explain(err))
	default:
		w.settledNow(done, []*pending{p})
	}
	return over
}

// returned notes that the rows of a claim are free again.
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

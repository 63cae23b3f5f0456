package adopt

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
)

// Worker is one of several that claim rows of the same table, in one process or many, with FOR
// UPDATE SKIP LOCKED. Each batch is a claim: a transaction on a separate connection, which holds
// the rows until Settle commits it. There is no order and no lease to lose. A claim that grows old
// is given up, so that no transaction is open for longer because a broker is down.
type Worker struct {
	*Source

	fetching sync.Mutex // no claim is begun while others are given up
	rewound  bool       // guarded by fetching

	claims  sync.Mutex // guards the fields below
	open    int
	careful bool // claims have grown old: one row at a time until one is settled
	size    int  // of the next claim, at most
}

var _ driver.Source = (*Worker)(nil)

func newWorker(s *Source) *Worker { return &Worker{Source: s, size: firstClaims} }

// claim is an open transaction and the rows that it has locked.
type claim struct {
	mu    sync.Mutex
	tx    pgx.Tx // nil once it is over
	timer *time.Timer
}

// end finishes the claim's transaction, once: by rollback, if f does not commit it.
func (c *claim) end(f func(tx pgx.Tx) error) (over bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tx == nil {
		return true, nil
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	if f != nil {
		err = f(c.tx)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.tx.Rollback(ctx) // after a commit it does nothing
	c.tx = nil
	return false, err
}

// Fetch implements driver.Source. It claims the next rows that no worker has. After a claim has
// grown old all are given up, and the batch says so.
func (w *Worker) Fetch(ctx context.Context, limit driver.Limit) (batch driver.Batch, err error) {
	if err := w.begin(&limit); err != nil {
		return driver.Batch{}, err
	}
	w.fetching.Lock()
	defer w.fetching.Unlock()
	defer func() {
		if err == nil {
			batch.Rewound, w.rewound = w.rewound, false
		}
	}()
	size, free := w.reserve()
	if !free {
		return driver.Batch{}, nil
	}
	limit.Messages = min(limit.Messages, size)
	tx, err := w.t.pool.Begin(ctx)
	if err != nil {
		w.release()
		return driver.Batch{}, w.t.explain(err)
	}
	c, guarded := &claim{tx: tx}, w.guarded(tx)
	p, more, err := w.claimRows(ctx, tx, limit)
	if unreadable(err) && !guarded {
		w.guardUntil = time.Now().Add(guardFor)
		p, more, err = &pending{}, true, nil // by the next claim
	}
	if err != nil || len(p.messages) == 0 {
		if err == nil && p.commit {
			err = tx.Commit(ctx)
		}
		_, _ = c.end(nil)
		w.release()
		return driver.Batch{More: more && err == nil}, w.t.explain(err)
	}
	p.claim, p.since = c, time.Now()
	c.timer = time.AfterFunc(w.m.config.ClaimTimeout, w.giveUp)
	return w.register(p, more), nil
}

// reserve takes one of the claims that the workers of this process may hold at once. The claim has
// size rows at most.
func (w *Worker) reserve() (size int, free bool) {
	w.claims.Lock()
	defer w.claims.Unlock()
	if size = w.size; w.careful {
		size = 1
	}
	if w.careful && w.open > 0 {
		return size, false
	}
	if w.t.claims.Add(1) > int64(w.m.config.Workers) {
		w.t.claims.Add(-1)
		return size, false
	}
	w.open++
	return size, true
}

func (w *Worker) release() {
	w.claims.Lock()
	w.open--
	w.claims.Unlock()
	w.t.claims.Add(-1)
}

// claimRows takes rows that were out of band and are due, rows that were found late, or the next rows.
func (w *Worker) claimRows(ctx context.Context, tx pgx.Tx, limit driver.Limit) (p *pending, more bool, err error) {
	if w.outOfBandTurn() {
		if p, err = w.fetchOutOfBand(ctx, tx, limit); err != nil || len(p.messages) > 0 || p.commit {
			return p, true, err
		}
	}
	defer func() { clear(w.page) }()
	w.reconsider(ctx)
	p = &pending{before: w.head()}
	var rows []row
	if w.scanning {
		if err = w.scan(ctx); err != nil {
			return nil, false, err
		}
	}
	var cut int
	ids := w.late.take(w.fitting(limit))
	if len(ids) > 0 || w.scanning {
		rows, err = w.loadInOrder(ctx, tx, ids)
	} else {
		rows, err = w.claimNext(ctx, tx, limit)
	}
	if err == nil {
		cut, err = w.fill(ctx, p, rows, limit)
	}
	if err != nil {
		w.late.add(inFront, ids)
		return nil, false, err
	}
	p.keyOrder = nil               // no worker waits for another
	for _, r := range rows[cut:] { // they stay locked until the batch is settled, and are looked for then
		if !r.passed {
			p.left = append(p.left, r.id)
		}
	}
	return p, len(ids) > 0 || !w.scanning && w.full, nil
}

func (w *Worker) claimNext(ctx context.Context, tx pgx.Tx, limit driver.Limit) ([]row, error) {
	_, from := w.places()
	page, _, full, err := w.readOn(ctx, tx, from.place, limit)
	if err != nil {
		return nil, err
	}
	w.full = full
	w.moved(page)
	return page, nil
}

// A claim has as many rows as a sink of that pace takes in about a second. Delivered rows of an
// open claim are delivered again if the worker dies.
const (
	claimFor    = time.Second
	firstClaims = 100
)

// resize learns from a claim of this many rows how large the next one may be. The caller has
// w.claims.
func (w *Worker) resize(rows int, took time.Duration) {
	switch {
	case took > claimFor:
		w.size = max(1, int(float64(rows)*claimFor.Seconds()/took.Seconds()))
	case took < claimFor/2 && rows >= w.size:
		w.size *= 2
	}
}

// Close implements driver.Source: of open claims, rows with a verdict are
// settled.
func (w *Worker) Close(ctx context.Context) error {
	w.endAll()
	return w.Source.Close(ctx)
}

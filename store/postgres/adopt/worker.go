package adopt

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Worker is one of several that claim rows of the same table, in one process or many, with FOR
// UPDATE SKIP LOCKED. Each batch is a claim: a transaction on a separate connection, which holds
// the rows until Settle commits it. There is no order and no lease to lose. A claim that grows old
// is given up, so that no transaction is open for longer because a broker is down.
type Worker struct {
	*Source

	claims  sync.Mutex // guards the fields below
	open    int
	rewound bool
	careful bool // claims have grown old: one row at a time until one is settled
	size    int  // of the next claim, at most
}

var _ driver.Source = (*Worker)(nil)

func newWorker(s *Source) *Worker { return &Worker{Source: s, size: firstClaims} }

// claim is an open transaction and the rows that it has locked.
type claim struct {
	mu    sync.Mutex
	conn  *pgxpool.Conn // nil once it is over
	tx    pgx.Tx
	timer *time.Timer
}

// end finishes the claim's transaction, once: by rollback, if f does not commit it.
func (c *claim) end(f func(tx pgx.Tx) error) (err error, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil, true
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
	c.conn.Release()
	c.conn = nil
	return err, false
}

// watch calls f when the claim has been open for that long.
func (c *claim) watch(timeout time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.timer = time.AfterFunc(timeout, f)
	}
}

// Fetch implements driver.Source. It claims the next rows that no worker has. After a claim has
// grown old all are given up, and the batch says so.
func (w *Worker) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	if err := limit.Validate(); err != nil {
		return driver.Batch{}, err
	}
	if w.isClosed() {
		return driver.Batch{}, penstock.ErrClosed
	}
	free, size, rewound := w.reserve()
	if !free {
		return driver.Batch{Rewound: w.rewind(rewound)}, nil
	}
	limit.Messages = min(limit.Messages, w.m.config.Batch, size)
	w.land()
	c, err := w.begin(ctx)
	if err != nil {
		w.release()
		return driver.Batch{}, w.t.explain(err)
	}
	guarded := w.guarded(c.tx)
	p, more, err := w.claimRows(ctx, c.tx, limit)
	if unreadable(err) && !guarded {
		w.guardUntil = time.Now().Add(guardFor)
		p, more, err = &pending{}, true, nil // by the next claim
	}
	if err != nil || len(p.messages) == 0 {
		if err == nil && p.commit {
			err, _ = c.end(func(tx pgx.Tx) error { return tx.Commit(ctx) })
		}
		_, _ = c.end(nil)
		w.release()
		if err != nil {
			return driver.Batch{}, w.t.explain(err)
		}
		return driver.Batch{More: more, Rewound: w.rewind(rewound)}, nil
	}
	p.claim, p.since = c, time.Now()
	batch := w.register(p, more)
	c.watch(w.m.config.ClaimTimeout, w.giveUp)
	w.claims.Lock()
	again := w.rewound && !rewound
	w.claims.Unlock()
	if again { // another claim has grown old meanwhile; this one may have been given up with it
		if _, over := c.end(nil); !over {
			w.release()
			w.returned(p)
		}
		return driver.Batch{Rewound: w.rewind(true)}, nil
	}
	batch.Rewound = w.rewind(rewound)
	return batch, nil
}

// rewind takes the position that a Fetch has seen.
func (w *Worker) rewind(seen bool) bool {
	if seen {
		w.claims.Lock()
		w.rewound = false
		w.claims.Unlock()
	}
	return seen
}

// reserve takes one of the claims that the workers of this process may hold at once. The claim has
// size rows at most.
func (w *Worker) reserve() (free bool, size int, rewound bool) {
	w.claims.Lock()
	defer w.claims.Unlock()
	if size = w.size; w.careful {
		size = 1
	}
	if w.careful && w.open > 0 {
		return false, size, w.rewound
	}
	if w.t.claims.Add(1) > int64(w.m.config.Workers) {
		w.t.claims.Add(-1)
		return false, size, w.rewound
	}
	w.open++
	return true, size, w.rewound
}

func (w *Worker) release() {
	w.claims.Lock()
	w.open--
	w.claims.Unlock()
	w.t.claims.Add(-1)
}

func (w *Worker) begin(ctx context.Context) (*claim, error) {
	conn, err := w.t.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &claim{conn: conn, tx: tx}, nil
}

// claimRows takes rows that were out of band and are due, rows that were found late, or the next rows.
func (w *Worker) claimRows(ctx context.Context, tx pgx.Tx, limit driver.Limit) (p *pending, more bool, err error) {
	if w.outOfBandTurn() {
		if p, err = w.fetchOutOfBand(ctx, tx, limit); err != nil || len(p.messages) > 0 || p.commit {
			return p, true, err
		}
	}
	w.reconsider(ctx)
	p = &pending{before: w.head()}
	var rows []row
	if w.scanning {
		if err = w.scan(ctx); err != nil {
			return nil, false, err
		}
	}
	ids := w.late.take(w.fitting(limit))
	if len(ids) > 0 || w.scanning {
		rows, err = w.loadInOrder(ctx, tx, ids)
	} else {
		rows, err = w.claimNext(ctx, tx, limit)
	}
	if err == nil {
		_, err = w.fill(ctx, p, rows, limit)
	}
	if err != nil {
		w.late.add(inFront, ids)
		return nil, false, err
	}
	p.keyOrder = nil // no worker waits for another
	w.leftOver(p, rows)
	return p, len(ids) > 0 || !w.scanning && w.full, nil
}

// leftOver remembers rows that were claimed and had no room in the batch: they stay
// locked until it is settled, and are looked for then.
func (w *Worker) leftOver(p *pending, rows []row) {
	taken := make(map[string]bool, len(p.rows))
	for i := range p.rows {
		taken[p.rows[i].id] = true
	}
	for _, r := range rows {
		if !taken[r.id] && !r.passed {
			p.left = append(p.left, r.id)
		}
	}
}

func (w *Worker) claimNext(ctx context.Context, tx pgx.Tx, limit driver.Limit) (page []row, err error) {
	before, from := w.places()
	if w.full {
		from = before
	}
	n := w.fitting(limit)
	sql, args := w.st.claim.behind(from.place, n)
	d, guarded := w.m.decoder(w.m.whole), w.guarded(tx)
	err = w.guard(ctx, tx, sql, args, func(values [][]byte) {
		page = append(page, d.decode(values))
	})
	if unreadable(err) && guarded {
		page, _, _, err = w.reread(ctx, tx, from.place, n, limit.Bytes)
	}
	if err != nil {
		return nil, err
	}
	w.weigh(page)
	w.full = len(page) == n
	if w.noteLag(page); len(page) > 0 {
		w.mu.Lock()
		w.track.moved(page[len(page)-1].at, len(page), time.Now())
		w.mu.Unlock()
	}
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
